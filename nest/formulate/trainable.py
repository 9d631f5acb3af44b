"""Trained part of a model: low-rank adapters, frozen parameters, and operators without gradients.

LoRA (Hu et al., arXiv 2106.09685, section 4.1): beside a frozen weight `W` of `d_out x d_in` the product `B A x` is
trained, with `A` of `rank x d_in` and `B` of `d_out x rank`, and added to `W x`. Targets are module names of Llama in
transformers, as in `target_modules` of peft's `LoraConfig`.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from attrs import evolve

from nest.errors import InputError
from nest.graph import Operator, OperatorGraph, Parameter, Tensor, has_axis
from nest.spec import Lora, Trainable
from nest.spec.trainable import ALL_LINEAR, STORED

MODULES = {
    "query": ("q_proj",),
    "key_value": ("k_proj", "v_proj"),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "query_latent": ("q_a_proj",),
    "key_value_latent": ("kv_a_proj_with_mqa",),
    "attention_output": ("o_proj",),
    "up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
    "logits": ("lm_head",),
    "index_key": ("wk",),
    "index_weights": ("weights_proj",),
}
"""Modules of transformers by operator name within a layer (suffixes for feed-forward networks): with an axis `branch`
one for each index, else the last."""

FUSED = {"query": "qkv_proj", "key_value": "qkv_proj", "up": "gate_up_proj"}
"""Modules of other families that fuse several of these, such as Phi-3's and Megatron Core's (`linear_qkv`,
`linear_fc1`): one adapter, whose first product they share."""

NETWORKS = ("mlp", "expert", "shared_expert")  # Prefixes of operator names in feed-forward networks.

EXPANDING = {"query": ("q_b_proj",), "key_value": ("kv_b_proj",), "index_query": ("wq_b",)}
"""Same for projections out of a latent (`MODULES`)."""

ABSORBED = ("absorbed_query", "context")  # Halves of `kv_b_proj` around sparse attention: no adapter is known there.

BRANCH, RANK = "branch", "rank"
"""Axes of products merged into one operator, and between the two products of an adapter."""

LINEAR = ("matmul", "router")  # Kinds of products with weights.


def with_trainable(graph: OperatorGraph, trainable: Trainable) -> OperatorGraph:
    """Add adapters, freeze what is not trained, and keep only the needed gradients.

    As in autograd, a tensor has a gradient if something trained leads to it; an operator without such a result has no
    backward pass and saves nothing. A product with a frozen weight saves no input: its backward pass only finds the
    gradient of its input, half as many FLOP as both. Frozen weights of linear layers in blocks may be stored in a
    narrow format; biases, routers, embedding and head keep theirs, as in bitsandbytes.

    Args:
        graph: of one sample, from an importer.

    Raises:
        InputError: a target or a layer is missing, nothing is trained, or only one of two layers with a shared weight.
    """
    adapted = graph if trainable.lora is None else _with_adapters(graph, trainable.lora)
    itemsize = None if trainable.stored is None else STORED[trainable.stored]
    blocks = frozenset(graph.blocks)
    originals = frozenset(operator.name for operator in graph.operators)
    for pattern in trainable.layers:
        if not any(_named(operator, (pattern,)) for operator in graph.operators):
            raise InputError(
                f"training.trainable: the model has no layer {pattern!r:.80}; layers are {_examples(graph.layers)}, "
                "and `*` stands for any text."
            )
    trained = {
        operator.name
        for operator in adapted.operators
        if operator.name not in originals or _named(operator, trainable.layers)
    }
    if not any(operator.parameters for operator in adapted.operators if operator.name in trained):
        raise InputError("training.trainable names no layer with parameters; name one.")
    _check_tied(graph, trained)
    changed: dict[str, Tensor] = {}

    def change(operator: Operator) -> tuple[Operator, ...]:
        operator = _with_gradients(operator, operator.name in trained, changed)
        if itemsize is not None and operator.layer in blocks and operator.kind == "matmul":
            narrow = (
                evolve(p, itemsize=itemsize if p.frozen and len(p.shape) > 1 else None) for p in operator.parameters
            )
            operator = evolve(operator, parameters=tuple(narrow))
        changed.update((tensor.name, tensor) for tensor in operator.outputs)
        return (operator,)

    return adapted.map_operators(change)


def trained_count(graph: OperatorGraph) -> int:
    """Trained scalars; tied parameters count once."""
    return sum(p.count for operator in graph.operators for p in operator.parameters if not p.tied and not p.frozen)


def backward_share(graph: OperatorGraph) -> float:
    """Ratio of backward to forward model FLOP, for products with needed gradients; 2 if all is trained.

    By the convention of utilisation figures (PaLM, arXiv 2204.02311, appendix B), each of a product's gradients costs
    one forward pass.
    """
    found = sum(min(operator.backward_flops_ratio, 2.0) * operator.model_flops for operator in graph.operators)
    return found / graph.model_flops if graph.model_flops else 2.0


def _named(operator: Operator, patterns: tuple[str, ...]) -> bool:
    # A further vocabulary projection, such as `head/logits_1`, has the weight of the first.
    sharing = operator.name if operator.parameters else operator.name.rpartition("_")[0]
    return any(fnmatchcase(name, each) for name in (operator.layer, operator.name, sharing) for each in patterns)


def _examples(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) < 5 else (*names[:2], "...", *names[-2:]))


def _check_tied(graph: OperatorGraph, trained: set[str]) -> None:
    """Refuse to train one of two layers that share a weight, which no framework can."""
    sharing = [operator for operator in graph.operators if any(p.tied for p in operator.parameters)]
    tables = [
        o for o in graph.operators if o.kind == "embedding" and any(has_axis(p.shape, "vocab") for p in o.parameters)
    ]
    if sharing and tables and len({operator.name in trained for operator in (*sharing, *tables[:1])}) > 1:
        raise InputError(
            f"training.trainable: {sharing[0].layer!r} shares its weight with {tables[0].layer!r}; name both or "
            "neither."
        )


def _with_gradients(operator: Operator, trained: bool, changed: dict[str, Tensor]) -> Operator:
    """`operator`, trained or frozen, reading tensors as rewritten before it (`changed`)."""
    inputs = tuple(changed.get(tensor.name, tensor) for tensor in operator.inputs)
    entering = any(tensor.differentiable for tensor in inputs)
    learns = trained and (bool(operator.parameters) or _shares_weight(operator))
    ratio, saves = operator.backward_flops_ratio, operator.saves
    if not (entering or learns):
        ratio, saves = 0.0, ()
    elif operator.kind in (*LINEAR, "embedding") and (operator.parameters or _shares_weight(operator)):
        ratio *= (entering + learns) / 2
        saves = saves if learns else ()
    return evolve(
        operator,
        inputs=inputs,
        outputs=tuple(evolve(t, differentiable=t.differentiable and (entering or learns)) for t in operator.outputs),
        parameters=tuple(evolve(parameter, frozen=not trained) for parameter in operator.parameters),
        saves=saves,
        backward_flops_ratio=ratio,
    )


def _shares_weight(operator: Operator) -> bool:
    """True for a product with the weight of another operator."""
    return operator.kind == "matmul" and not operator.parameters and len(operator.inputs) == 1


def _modules(operator: Operator) -> dict[str, int | None]:
    """Target names of parts of `operator`: its modules, with their branch; None: all of it."""
    short = operator.name.rpartition("/")[2]
    if operator.kind != "matmul" or not operator.parameters or len(operator.inputs) > 1 or short in ABSORBED:
        return {}
    latent, branched = "latent" in operator.contracted, has_axis(operator.space, BRANCH)
    network, _, direction = short.rpartition("_")
    named, key = EXPANDING if latent else MODULES, direction if network in NETWORKS else short
    modules = named.get(key) or (short,)
    found: dict[str, int | None] = {modules[-1]: None}
    if len(modules) > 1 and branched:
        found = {module: branch for branch, module in enumerate(modules)}
    fused = not latent and key in FUSED and (branched or key == "query")
    return {**found, FUSED[key]: None} if fused else found


def _with_adapters(graph: OperatorGraph, lora: Lora) -> OperatorGraph:
    known = {module for operator in graph.operators for module in _modules(operator)}
    several = {module for o in graph.operators if has_axis(o.space, BRANCH) for module in _modules(o)}
    known -= {*FUSED.values()} - several
    unknown = sorted({*lora.targets} - known - {ALL_LINEAR})
    if unknown:
        raise InputError(
            f"training.trainable.lora.targets: the model has no linear layer {unknown[0]!r:.80}; "
            f"it has {', '.join(sorted(known))}, and {ALL_LINEAR!r} stands for all but lm_head."
        )
    if ALL_LINEAR in lora.targets and any(o.name == f"{o.layer}/{ABSORBED[0]}" for o in graph.operators):
        raise InputError(
            f"training.trainable.lora.targets: nest knows no adapter of kv_b_proj in sparse attention; in place of "
            f"{ALL_LINEAR!r} name {', '.join(sorted(known - {'lm_head', *FUSED.values()}))}, or some of them."
        )
    if "lm_head" in lora.targets and any(_shares_weight(operator) for operator in graph.operators):
        raise InputError(
            "training.trainable.lora.targets: nest supports no adapter on lm_head with mtp_layers; leave one of "
            "them out."
        )
    targets = {*lora.targets} | (known - {"lm_head", *FUSED.values()} if ALL_LINEAR in lora.targets else set())
    shared: dict[tuple[str, str], Tensor] = {}

    def change(operator: Operator) -> tuple[Operator, ...]:
        adapted = {module: branch for module, branch in _modules(operator).items() if module in targets}
        return tuple(_adapted(operator, adapted, lora.rank, shared)) if adapted else (operator,)

    return graph.map_operators(change)


def _adapted(
    operator: Operator, modules: dict[str, int | None], rank: int, shared: dict[tuple[str, str], Tensor]
) -> Iterator[Operator]:
    """`operator`, an adapter for each of `modules`, and the sum of their results under the old names.

    Adapters of one module with the same input share their first product, kept in `shared`.
    """
    several = len(operator.outputs) > 1
    whole = None in modules.values()
    summed = [
        tensor for index, tensor in enumerate(operator.outputs) if whole or not several or index in modules.values()
    ]
    renamed = {tensor.name: f"{tensor.name}.frozen" for tensor in summed}
    base = evolve(
        operator,
        outputs=tuple(evolve(tensor, name=renamed.get(tensor.name, tensor.name)) for tensor in operator.outputs),
        saves=tuple(renamed.get(name, name) for name in operator.saves),
    )
    yield base
    changes: list[Tensor] = []
    for module, branch in modules.items():
        makes = summed if branch is None else [operator.outputs[branch if several else 0]]
        down, up = _adapter(operator, module, branch, makes, rank)
        key = module, operator.inputs[0].name
        if key in shared:
            up = evolve(up, inputs=(shared[key],), saves=(shared[key].name,))
        else:
            yield down
            (shared[key],) = down.outputs
        yield up
        changes += up.outputs
    yield Operator(
        name=f"{operator.name}.adapted",
        layer=operator.layer,
        kind="elementwise",
        space=summed[0].shape,
        inputs=(*(tensor for tensor in base.outputs if tensor.name in renamed.values()), *changes),
        outputs=tuple(summed),
    )


def _adapter(
    operator: Operator, module: str, branch: int | None, makes: list[Tensor], rank: int
) -> tuple[Operator, Operator]:
    """The two products of an adapter; the second makes the shapes of `makes`, one branch of them."""
    source, weight = operator.inputs[0], max(operator.parameters, key=lambda parameter: parameter.count)
    inner = tuple(axis for axis in weight.shape if axis[0] in operator.contracted)
    routed = tuple(axis for axis in weight.shape if not has_axis(operator.space, axis[0]))
    columns = tuple(
        axis
        for axis in weight.shape
        if axis not in (*inner, *routed) and not (axis[0] == BRANCH and branch is not None)
    )
    rows = tuple(axis for axis in source.shape if axis[0] not in operator.contracted)
    between = (RANK, rank)
    name = f"{operator.name}.{module}.lora"
    latent = Tensor(f"{name}_a", (*rows, between), source.itemsize)
    results = tuple(
        evolve(
            tensor,
            name=f"{tensor.name}.{module}",
            shape=tuple(a for a in tensor.shape if branch is None or a[0] != BRANCH),
        )
        for tensor in makes
    )
    down = evolve(
        operator,
        name=f"{name}_a",
        space=(*rows, between, *inner),
        outputs=(latent,),
        parameters=(Parameter("lora_a", (*routed, between, *inner), weight.group),),
        saves=(source.name,),
        flops_per_point=2.0,
        model_flops_per_point=2.0,
        backward_flops_ratio=2.0,
    )
    up = evolve(
        down,
        name=f"{name}_b",
        space=(*rows, *columns, between),
        inputs=(latent,),
        outputs=results,
        parameters=(Parameter("lora_b", (*routed, *columns, between), weight.group),),
        saves=(latent.name,),
        contracted=(RANK,),
    )
    return down, up
