"""One of some ranks that trains modules of the zoo by the plans in a folder, and compares them with one process."""

import datetime
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.tensor import DTensor

import nest_torch
import zoo
import zoo_families
from nest.errors import InputError
from nest_torch.parallel import agreement, filling, layout, stages, trial
from nest_torch.parallel.flow import first_tensor
from nest_torch.parallel.samples import drawn, observed
from nest_torch.parallel.training import cross_entropy

STEPS, RATE = 3, 0.1
TOKENS = zoo.TOKENS


def make(name):
    if name.startswith("drawn"):
        return zoo.drawn(name)
    return {**zoo.TRAINED, **zoo_families.TRAINED}[name]()


def example(name, precision=torch.float64):
    """One sample of inputs, in the number format of the module."""
    found = {**zoo.INPUTS, **zoo_families.INPUTS}.get(name, TOKENS)
    return {key: each.to(precision) if each.is_floating_point() else each for key, each in found.items()}


def made(name):
    if name in zoo_families.ROUTED_FAMILIES:  # Kernels of grouped products have no double precision; this code has.
        from transformers.integrations import moe

        moe._can_use_grouped_mm = lambda *_: False
    torch.manual_seed(0)
    model = make(name).double()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn(each.shape) * 0.02)
    return model


def batches(name, rows):
    """Inputs and targets of every step, the same in every process."""
    inputs, generator = example(name), torch.Generator().manual_seed(1)
    sizes = observed(made(name), inputs, torch.float64)[1]
    bounds = dict.fromkeys(inputs, zoo.VOCABULARY)
    for _ in range(STEPS):
        given = drawn(inputs, rows, bounds, torch.float64, generator)
        yield given, torch.randint(0, sizes[-1], (rows, *sizes[1:-1]), generator=generator)


def rows_of(given, targets, start, count):
    """Some samples of a batch."""
    return {name: each[start:][:count] for name, each in given.items()}, targets[start:][:count]


def alone(name, rows, size, model, optimizer):
    """Losses of one process, micro-batch by micro-batch."""
    losses = []
    for given, targets in batches(name, rows):
        total = 0.0
        for start in range(0, rows, size):
            part, target = rows_of(given, targets, start, size)
            loss = cross_entropy(first_tensor(model(**part)), target) * size / rows
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def together(name, parallel, optimizer):
    """Losses of this rank's replica and of all others."""
    losses = []
    for given, targets in batches(name, parallel.batch * parallel.data_ranks):
        mine = rows_of(given, targets, parallel.data_rank * parallel.batch, parallel.batch)
        losses.append(float(parallel.step(*mine)))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trained(name, plan):
    """What came of it: refused and why, or how far losses and saved numbers are from one process."""
    model = made(name)
    state = torch.get_rng_state()
    try:
        parallel = nest_torch.apply(model, plan, example_inputs=example(name))
    except InputError as error:
        return {"refused": str(error)}
    kept = torch.equal(state, torch.get_rng_state())
    losses = together(name, parallel, torch.optim.SGD(parallel.parameters(), RATE))
    saved = parallel.state_dict()
    loaded = taken_over(parallel, saved)
    if dist.get_rank():
        return {}
    model = made(name)
    rows = parallel.batch * parallel.data_ranks
    expected = alone(name, rows, parallel.samples, model, torch.optim.SGD(model.parameters(), RATE))
    apart = differences(losses, expected)
    for key, each in model.state_dict().items():
        given = saved.get(key, torch.full_like(each, float("inf"), dtype=torch.float64)).double()
        apart.append(float((given - each.double()).norm() / each.double().norm().clamp_min(1e-3)))
    return {"apart": max(apart), "kept": kept and loaded}


def differences(losses, expected):
    return [abs(one - other) / other for one, other in zip(losses, expected, strict=True)]


def saved(name, plans):
    """How far losses are from those of the run that wrote a checkpoint: under other plans, and in one process."""
    place, apart, expected = str(Path(plans[0]).with_suffix(".checkpoint")), [], []
    for index, plan in enumerate(plans):
        model = made(name)
        with torch.no_grad():
            for each in model.parameters() if index else ():
                each.add_(1)
        parallel = nest_torch.apply(model, plan, example_inputs=example(name), check=False)
        optimizer = torch.optim.AdamW(parallel.parameters(), 1.0 if index else 1e-3, foreach=False)
        if index == 0:
            together(name, parallel, optimizer)
            parallel.save(place, optimizer)
        else:
            parallel.load(place, optimizer)
        losses = together(name, parallel, optimizer)
        expected = expected if index else losses
        apart.append(max(differences(losses, expected)))
    model = made(name)
    optimizer = torch.optim.AdamW(model.parameters(), 1.0, foreach=False)
    options = states.StateDictOptions(flatten_optimizer_state_dict=True)
    state = {
        "model": model.state_dict(),
        "optimizer": states.get_optimizer_state_dict(model, optimizer, options=options),
    }
    dcp.load(state, checkpoint_id=place)
    states.set_optimizer_state_dict(model, optimizer, state["optimizer"], options=options)
    losses = alone(name, parallel.batch * parallel.data_ranks, parallel.samples, model, optimizer)
    return {"apart": [*apart, max(differences(losses, expected))]}


def taken_over(parallel, saved):
    """Whether every rank loads what was saved, and saves it again."""
    state = [saved]
    dist.broadcast_object_list(state)
    with torch.no_grad():
        for each in parallel.parameters():
            each.zero_()
    parallel.load_state_dict(state[0])
    again = parallel.state_dict()
    return again.keys() == saved.keys() and all(torch.equal(each, again[name]) for name, each in saved.items())


def unmade(name, plan):
    """How far weights made under a plan are from those that one process makes of the same seed."""

    def bare():
        torch.manual_seed(0)
        with torch.device("meta"):
            return make(name)

    try:
        saved = nest_torch.apply(bare(), plan, example_inputs=example(name, torch.float32)).state_dict()
    except InputError as error:
        return {"refused": str(error)}
    state = torch.get_rng_state()
    whole = bare()
    shape = layout.deployment_of(layout.plan_document(plan))
    layers = [name for run in shape.runs for name in run.layers]
    filling.fill(whole, [whole], list(stages.blocks_of(whole, layers).values()), torch.device("cpu"))
    expected = {**whole.state_dict(), "random state": torch.get_rng_state()}
    torch.manual_seed(0)
    built = make(name).state_dict()
    saved["random state"] = state
    unlike = [key for key, each in expected.items() if not torch.equal(each, saved.get(key, each + 1))]
    unbuilt = [key for key, each in built.items() if not torch.equal(each, saved.get(key, each + 1))]
    return {"unlike": unlike, "unbuilt": unbuilt}


def loop(name, plan):
    """How far losses and weights of a usual loop are from one process: AdamW, clipping, evaluation, other sizes."""
    parallel = nest_torch.apply(made(name), plan, example_inputs=example(name))
    model, size, (ids,) = made(name), parallel.samples, example(name)
    pairs = []
    for each in (parallel, model):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01, foreach=False)
        pairs.append((optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))))
    torch.manual_seed(2)
    apart = []
    for share, length in ((1, zoo.LENGTH), (1, zoo.LENGTH - 2), (2, zoo.LENGTH), (1, zoo.LENGTH - 2)):
        batch = parallel.batch // share
        tokens = torch.randint(0, zoo.VOCABULARY, (batch * parallel.data_ranks, length + 1))
        mine = tokens[parallel.data_rank * batch :][:batch]
        given = {ids: mine[:, :-1]}, mine[:, 1:]
        seen = [float(parallel.eval_step(*given)), float(parallel.step(*given))]
        seen.append(float(parallel.clip_grad_norm_(0.5)))
        total = 0.0
        for part in tokens.split(size):
            loss = cross_entropy(first_tensor(model(part[:, :-1])), part[:, 1:]) * size / len(tokens)
            loss.backward()
            total += float(loss.detach())
        expected = [total, total, float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))]
        apart += [abs(one - other) / other for one, other in zip(seen, expected, strict=True)]
        if share == 2:  # Resumed from what was saved.
            state = [parallel.state_dict(), parallel.optimizer_state_dict(pairs[0][0])]
            dist.broadcast_object_list(state)
            with torch.no_grad():
                for each in parallel.parameters():
                    each.zero_()
            pairs[0][0].state.clear()
            parallel.load_state_dict(state[0])
            parallel.load_optimizer_state_dict(pairs[0][0], state[1])
        for optimizer, schedule in pairs:
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    saved = parallel.state_dict()
    whole = model.state_dict()
    apart += [float((saved[key] - each).norm() / each.norm()) for key, each in whole.items() if saved]
    return {"apart": max(apart)}


def refusal(work):
    """What a call is refused with; empty: it is not."""
    try:
        work()
    except InputError as error:
        return str(error)
    return ""


def odd(plan, pipeline, several, wrong):
    """What comes of ranks that differ, of wrong samples, of large modules and of those without weights."""
    rank = dist.get_rank()
    found = {}

    def applied(make=zoo.Decoder, seed=0, plan=plan, **options):
        torch.manual_seed(seed)
        return nest_torch.apply(make(), plan, example_inputs=TOKENS, **options)

    def given(rows, seed=1):
        torch.manual_seed(seed)
        tokens = torch.randint(0, zoo.VOCABULARY, (rows, zoo.LENGTH + 1))
        return {"tokens": tokens[:, :-1]}, tokens[:, 1:]

    found["weights"] = refusal(lambda: applied(seed=rank))
    parallel = applied()
    found["rows"] = refusal(lambda: parallel.step(*given(parallel.batch - 1)))
    found["samples"] = refusal(lambda: parallel.step(*given(parallel.batch, rank)))
    found["same"] = refusal(lambda: parallel.step(*given(parallel.batch)))
    fused = applied(zoo.TRAINED["fused_qkv"], plan=several).stages[0]
    found["raw"] = refusal(fused.state_dict)
    found["raw load"] = refusal(lambda: fused.load_state_dict({}))
    parallel = applied(lambda: zoo.Decoder(feed="dropout"))
    samples = given(parallel.batch)
    torch.manual_seed(rank)
    parallel.step(*samples)
    every = [None, None]
    gradient = dict(parallel.named_parameters())["layers.0.norm.weight"].grad
    dist.all_gather_object(every, getattr(gradient, "_local_tensor", gradient).tolist())
    found["dropout"] = "" if every[0] == every[1] else "ranks drop other numbers"
    torch.manual_seed(0)
    average = zoo.Average()
    before = {name: each.clone() for name, each in average.state_dict().items()}
    found["refused"] = refusal(lambda: nest_torch.apply(average, pipeline, example_inputs=TOKENS))
    found["untouched"] = "" if all(torch.equal(each, before[n]) for n, each in average.state_dict().items()) else "no"
    with torch.device("meta"):
        bare = zoo.Decoder()
    parallel = nest_torch.apply(bare, plan, example_inputs=TOKENS)
    found["meta"] = "" if {each.device.type for each in parallel.parameters()} == {"meta"} else "has numbers"
    found["no inputs"] = refusal(lambda: nest_torch.apply(zoo.Decoder().to("meta"), plan))
    sizes = []
    copied, large = trial._copied, trial.LARGE
    trial.LARGE = 0
    trial._copied = lambda model, device: sizes.append(len(model.layers)) or copied(model, device)
    found["shrunk"] = refusal(lambda: applied()) or refusal(lambda: applied(plan=pipeline))
    found["layers tried"] = sizes
    found["shrunk and wrong"] = refusal(lambda: applied(zoo.TRAINED["query_norms"], plan=wrong))
    trial._copied, trial.LARGE = copied, large
    return found


class Lonely(zoo.Feed):
    """Fails on the second rank, where others wait for it in tensor parallelism."""

    def forward(self, source):
        if dist.get_rank() == 1 and isinstance(self.up.weight, DTensor):
            raise ValueError("no memory is left")
        return super().forward(source)


def lonely(plan):
    """What each rank refuses with, when one fails alone; nothing, when a collective of others did not end."""
    agreement.PATIENCE = 1.0
    torch.manual_seed(0)
    model = zoo.Decoder()
    for layer in model.layers:
        layer.feed = Lonely()
    return refusal(lambda: nest_torch.apply(model, plan, example_inputs=TOKENS))


def main():
    """Train every plan; the first rank writes what came of each beside it."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=100))
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    if "lonely" in sys.argv:  # The rank that fails ends its process.
        found = lonely(str(folder / "plain-tp.plan.json"))
        (folder / f"{dist.get_rank()}.found").write_text(json.dumps(found))
        return
    paths = sorted(folder.glob("*.plan.json"))
    if "odd" in sys.argv:
        wanted = ("plain-tp", "plain-pp", "fused_qkv-tp", "query_norms-sp")
        work = {folder / "odd": lambda: odd(*(str(folder / f"{case}.plan.json") for case in wanted))}
    elif "saved" in sys.argv:
        names = dict.fromkeys(path.name.partition("-")[0] for path in paths)
        work = {
            folder / name: lambda name=name: saved(name, [str(path) for path in paths if path.match(f"{name}-*")])
            for name in names
        }
    else:
        one = loop if "loop" in sys.argv else unmade if "unmade" in sys.argv else trained
        work = {path: lambda path=path: one(path.name.partition("-")[0], str(path)) for path in paths}
    for path, each in work.items():
        if not path.with_suffix(".found").exists():  # Of a run before, which ended at another.
            found = each()
            if dist.get_rank() == 0:
                path.with_suffix(".found").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
