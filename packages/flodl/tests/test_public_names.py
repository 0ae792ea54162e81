import importlib
import subprocess
import sys

import pytest

import flodl

FACADE = """
    ArgmaxSelector Batch CaptureConfig CaptureError CheckpointError ConfigError CpuWorker
    CudaBeforeRunError DataError DataLoader Ddp DdpConfig Detach DiLoCo ElCheConfig ElCheMode
    ElasticConfig EpochCallbackPolicy EpochMetrics ExportError FakeNcclComms FixedSelector
    FlodlError FlowBuilder FlowError FlowWarning FormationError GpuGraph GradientMismatchError
    Graph GraphInputError GraphPathError HasGraph Identity JoinRejected Lambda LaunchError
    LearnedHalt LoadReport LoopBody LossContext MergeOp ModelSnapshot Monitor MsfGuard
    NcclAbortHandle NcclAborted NcclComms NcclError NcclRankComm NcclUniqueId NoDataError NoGuard
    NodeError NonFiniteError OuterAvg RankError ReduceOp Rendezvous Reshape Rng RunFailed
    RunInterrupted RunReport SigmoidRouter SlowMo SoftmaxRouter StateAdd StateShapeError
    StepContractError StopTraining SwitchIndexError TensorDataSet ThresholdHalt TopologyError
    TraceEmit TraceError TrainHandle TrainStep TrainedState Trainer TrainerConfig Trend TrendGroup
    TrendGuard Worker __version__ checkpoint_info checkpoint_keys checkpoint_version derive_seed
    drain_scalars exit_if_worker_role gpu_manual_seed_all load_checkpoint load_state_file
    manual_seed migrate_checkpoint record_scalar register_module save_checkpoint save_state_file
    seed_everything snapshot_cpu verify_step
""".split()


def test_the_facade_offers_exactly_these_names():
    assert sorted(flodl.__all__) == flodl.__all__ == sorted(FACADE)


@pytest.mark.parametrize("name", FACADE)
def test_each_name_of_the_facade_loads(name):
    assert getattr(flodl, name) is not None
    assert name in dir(flodl)


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="'Trainr'"):
        flodl.Trainr  # noqa: B018 (the access is the test)


@pytest.mark.parametrize(
    "package", ["checkpoint", "data", "graph", "metrics", "monitor", "nn", "trainer"]
)
def test_subpackages_list_their_names_sorted_and_each_exists(package):
    module = importlib.import_module(f"flodl.{package}")
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name


INERT = """
import os, sys, threading, logging, signal
before = dict(os.environ), threading.active_count(), signal.getsignal(signal.SIGINT)
handlers = list(logging.getLogger().handlers)
import {module}
assert dict(os.environ) == before[0], "the environment changed"
assert threading.active_count() == before[1], "a thread was started"
assert signal.getsignal(signal.SIGINT) is before[2], "a signal handler was installed"
assert logging.getLogger().handlers == handlers, "logging was configured"
torch = sys.modules.get("torch")
assert torch is None or not torch.cuda.is_initialized(), "a GPU was touched"
print(torch is not None)
"""


@pytest.mark.parametrize(
    ("module", "loads_torch"),
    [("flodl", False), ("flodl.metrics", False), ("flodl.sys", False), ("flodl.trainer", True)],
)
def test_importing_is_inert(module, loads_torch):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INERT.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(loads_torch)
