"""What single decisions are in flags of Megatron-LM and in its environment."""

from typing import Any

import pytest

from frameworks_tests.plans import DENSE, SPARSE, plan
from nest.errors import InputErrors
from nest.hooks.architectures import architecture_of
from nest.hooks.pipelines import deployed
from nest.io import read_mapping_text
from nest_frameworks.megatron.flags import flag_groups
from nest_frameworks.megatron.model_flags import model_flags
from nest_frameworks.megatron.notation import given_flags
from nest_frameworks.megatron.parallel_flags import environment
from nest_frameworks.megatron.relatives import swift

DECISIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "zero-2": ({"dp": 16, "zero": 2}, {}, {"--data-parallel-sharding-strategy": "optim_grads"}),
    "zero-3": ({"dp": 16, "zero": 3}, {}, {"--data-parallel-sharding-strategy": "optim_grads_params"}),
    "two-groups": (
        {"cp": 2, "dp": 8, "zero": 1, "zero_degree": 8},
        {},
        {"--num-distributed-optimizer-instances": 2},
    ),
    "unsharded": (
        {"dp": 16, "zero": 0},
        {"overlap": {"data": True}},
        {"--overlap-grad-reduce": True, "--overlap-param-gather": None},
    ),
    "ring": ({"cp": 2, "dp": 8}, {"context_exchange": "ring"}, {"--cp-comm-type": "p2p"}),
    "sgd": ({"dp": 16, "zero": 0}, {"optimizer": "sgd"}, {"--optimizer": "sgd", "--sgd-momentum": 0.0}),
    "offload": (
        {"dp": 16, "zero": 1},
        {"offload": ["optimizer"]},
        {"--optimizer-cpu-offload": True, "--optimizer-offload-fraction": 1.0},
    ),
    "some-layers": (
        {"dp": 16, "recompute": "full", "recompute_layers": 3},
        {},
        {"--recompute-method": "block", "--recompute-num-layers": 3},
    ),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_has_its_flags(decision: str) -> None:
    fixed, training, expected = DECISIONS[decision]
    groups = flag_groups(plan(fixed, **training))
    flags = {flag: value for group in groups.values() for flag, value in given_flags(group).items()}
    assert {flag: flags.get(flag) for flag in expected} == expected


def test_one_connection_is_kept_from_fsdp() -> None:
    """`validate_args` refuses it beside Megatron FSDP, and Megatron-SWIFT sets it where nobody does."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    sharded = plan({"dp": 16, "zero": 3}, gradients="bf16", master_gradients=False)
    whole = plan({"dp": 16, "zero": 1})
    exported, unset = environment(deployed(sharded))
    assert (name in exported, name in unset) == (False, True)
    assert environment(deployed(whole))[0][name] == "1"
    with pytest.raises(InputErrors, match=r"training\.gradients: bf16"):
        swift.export(plan({"dp": 16, "zero": 3}))
    told = [read_mapping_text(swift.export(each)[swift.FILE], "swift.yaml")["ENV"][name] for each in (sharded, whole)]
    assert [str(each) for each in told] == ["32", "1"]


def test_layers_that_predict_further_tokens_are_counted_apart() -> None:
    model = architecture_of({"transformer": {**SPARSE, "mtp_layers": 2}})
    assert model is not None
    flags = model_flags(model, 256)
    assert (flags["--num-layers"], flags["--mtp-num-layers"]) == (DENSE["layers"], 2)
