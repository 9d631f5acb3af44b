"""One of some ranks that trains modules of the zoo by the plans in a folder, and compares them with one process."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn import functional

import nest_torch
import zoo
import zoo_families
from nest.errors import InputError
from nest_torch.parallel import agreement, trial
from nest_torch.parallel.stages import first_tensor

STEPS, RATE = 2, 0.1
TOKENS = {"tokens": torch.zeros(1, zoo.LENGTH, dtype=torch.long)}


def made(name):
    torch.manual_seed(0)
    model = {**zoo.TRAINED, **zoo_families.TRAINED}[name]().double()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn(each.shape) * 0.02)
    return model


def batches(rows):
    torch.manual_seed(1)
    return [torch.randint(0, zoo.VOCABULARY, (rows, zoo.LENGTH + 1)) for _ in range(STEPS)]


def alone(name, rows, size):
    """Losses and the state of one process, micro-batch by micro-batch."""
    model = made(name)
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for tokens in batches(rows):
        total = 0.0
        for part in tokens.split(size):
            logits = first_tensor(model(part[:, :-1]))
            loss = functional.cross_entropy(logits.flatten(0, -2), part[:, 1:].flatten()) * size / rows
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, model.state_dict()


def trained(name, plan):
    """What came of it: refused and why, or how far losses and saved numbers are from one process."""
    before = torch.get_rng_state()
    model = made(name)
    state = torch.get_rng_state()
    try:
        parallel = nest_torch.apply(model, plan, example_inputs=TOKENS)
    except InputError as error:
        return {"refused": str(error)}
    kept = torch.equal(state, torch.get_rng_state())
    torch.set_rng_state(before)
    optimizer, losses = torch.optim.SGD(parallel.parameters(), RATE), []
    rows = parallel.batch * parallel.data_ranks
    for tokens in batches(rows):
        mine = tokens[parallel.data_rank * parallel.batch :][: parallel.batch]
        losses.append(float(parallel.step({"tokens": mine[:, :-1]}, mine[:, 1:])))
        optimizer.step()
        optimizer.zero_grad()
    saved = parallel.state_dict()
    loaded = taken_over(parallel, saved)
    if dist.get_rank():
        return {}
    size = parallel.batch // parallel.meshes.shape.micro_batches
    expected, whole = alone(name, rows, size)
    apart = [abs(one - other) / other for one, other in zip(losses, expected, strict=True)]
    for key, each in whole.items():
        given = saved.get(key, torch.full_like(each, float("inf"), dtype=torch.float64)).double()
        apart.append(float((given - each.double()).norm() / each.double().norm().clamp_min(1e-3)))
    return {"apart": max(apart), "kept": kept and loaded}


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


def loop(name, plan):
    """How far losses and weights of a usual loop are from one process: AdamW, clipping, evaluation, other sizes."""
    parallel = nest_torch.apply(made(name), plan, example_inputs=TOKENS)
    model, size = made(name), parallel.samples
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
        given = {"tokens": mine[:, :-1]}, mine[:, 1:]
        seen = [float(parallel.eval_step(*given)), float(parallel.step(*given))]
        seen.append(float(parallel.clip_grad_norm_(0.5)))
        total = 0.0
        for part in tokens.split(size):
            logits = first_tensor(model(part[:, :-1]))
            loss = functional.cross_entropy(logits.flatten(0, -2), part[:, 1:].flatten()) * size / len(tokens)
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

    def applied(make=zoo.plain, seed=0, plan=plan, **options):
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
    fused = applied(zoo.fused_qkv, plan=several).stages[0]
    found["raw"] = refusal(fused.state_dict)
    found["raw load"] = refusal(lambda: fused.load_state_dict({}))
    parallel = applied(zoo.dropout)
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
        bare = zoo.plain()
    parallel = nest_torch.apply(bare, plan, example_inputs=TOKENS)
    found["meta"] = "" if {each.device.type for each in parallel.parameters()} == {"meta"} else "has numbers"
    found["no inputs"] = refusal(lambda: nest_torch.apply(zoo.plain().to("meta"), plan))
    sizes = []
    copied, large = trial._copied, trial.LARGE
    trial.LARGE = 0
    trial._copied = lambda model, device: sizes.append(len(model.layers)) or copied(model, device)
    found["shrunk"] = refusal(lambda: applied()) or refusal(lambda: applied(plan=pipeline))
    found["layers tried"] = sizes
    found["shrunk and wrong"] = refusal(lambda: applied(zoo.query_norms, plan=wrong))
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
    model = zoo.plain()
    for layer in model.layers:
        layer.feed = Lonely()
    return refusal(lambda: nest_torch.apply(model, plan, example_inputs=TOKENS))


def main():
    """Train every plan; the first rank writes what came of each beside it."""
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    if "lonely" in sys.argv:  # The rank that fails ends its process.
        found = lonely(str(folder / "plain-tp.plan.json"))
        (folder / f"{dist.get_rank()}.found").write_text(json.dumps(found))
        return
    if "odd" in sys.argv:
        found = odd(
            *(str(folder / f"{case}.plan.json") for case in ("plain-tp", "plain-pp", "fused_qkv-tp", "query_norms-sp"))
        )
        if dist.get_rank() == 0:
            (folder / "odd.found").write_text(json.dumps(found))
    for path in sorted(folder.glob("*.plan.json")) if "odd" not in sys.argv else ():
        found = (loop if "loop" in sys.argv else trained)(path.name.partition("-")[0], str(path))
        if dist.get_rank() == 0:
            path.with_suffix(".found").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
