"""Dividing a whole graph along an axis."""

from attrs import evolve

from nest.graph import Collective, Communication, Operator, OperatorGraph, Shape, divide


def divided(graph: OperatorGraph, axis: str, degree: int, strategy: str) -> OperatorGraph:
    """Every operator that has `axis` on a share of it; what it communicates shrinks alike."""

    def share(operator: Operator) -> tuple[Operator, ...]:
        tensors = (*operator.inputs, *operator.outputs)
        if not any(_has(shape, axis) for shape in (operator.space, *(tensor.shape for tensor in tensors))):
            return (operator,)
        return (
            evolve(
                operator,
                space=divide(operator.space, axis, degree),
                inputs=tuple(tensor.divided(axis, degree) for tensor in operator.inputs),
                outputs=tuple(tensor.divided(axis, degree) for tensor in operator.outputs),
                collective=_share_of_calls(operator.collective, degree),
                split=operator.split if operator.collective is not None else (*operator.split, strategy),
            ),
        )

    return graph.map_operators(share)


def _share_of_calls(collective: Collective | None, degree: int) -> Collective | None:
    if collective is None:
        return None

    def shares(calls: tuple[Communication, ...]) -> tuple[Communication, ...]:
        return tuple(evolve(call, bytes=call.bytes / degree) for call in calls)

    return evolve(collective, forward=shares(collective.forward), backward=shares(collective.backward))


def _has(shape: Shape, axis: str) -> bool:
    return any(name == axis for name, _ in shape)
