"""Every environment variable of flodl and fdl, as data: the reference page is made from here.

Code of this package reads its variables through these constants and never spells a name again.
"""

import os
from typing import NamedTuple


class Variable(NamedTuple):
    """One environment variable: what it holds, what its absence means and who reads it."""

    name: str
    type: str
    default: str
    reader: str
    meaning: str

    def get(self) -> str | None:
        """Returns the value, or ``None`` when the variable is unset or empty."""
        return os.environ.get(self.name) or None


BIN = Variable(
    "FDL_BIN",
    type="file",
    default="the fdl that runs the command",
    reader="programs that fdl starts",
    meaning="Set by fdl: the fdl to call from within a command.",
)
ENV = Variable(
    "FDL_ENV",
    type="name",
    default="no overlay",
    reader="fdl",
    meaning="Overlay to merge into the manifest, as --env.",
)
GPU_FEATURE = Variable(
    "FDL_GPU_FEATURE",
    type="cuda, rocm or empty",
    default="what the torch of the project was built for",
    reader="programs that fdl starts",
    meaning="Set by fdl: the kind of GPU code in the project's torch.",
)
LIBTORCH_CASE = Variable(
    "FDL_LIBTORCH_CASE",
    type="name",
    default="the usual pointer, libtorch/.active",
    reader="fdl libtorch",
    meaning="Use the variant activated with --as under this name.",
)
LIBTORCH_MIRROR = Variable(
    "FDL_LIBTORCH_MIRROR",
    type="address",
    default="the address of the catalog",
    reader="fdl libtorch download",
    meaning="Address to fetch libtorch from instead, as --mirror.",
)
NO_UPDATE_CHECK = Variable(
    "FDL_NO_UPDATE_CHECK",
    type="0 or 1",
    default="unset",
    reader="fdl",
    meaning="Anything: never look for newer versions, nor speak of them.",
)
PROJECT_ROOT = Variable(
    "FDL_PROJECT_ROOT",
    type="folder",
    default="the folder of the root manifest",
    reader="programs that fdl starts",
    meaning="Set by fdl: the project that a command belongs to.",
)
STRICT_ENV = Variable(
    "FDL_STRICT_ENV",
    type="0 or 1",
    default="0",
    reader="fdl",
    meaning="1: a first word that is both a command and an overlay is an error.",
)
TRACEBACK = Variable(
    "FDL_TRACEBACK",
    type="0 or 1",
    default="0",
    reader="fdl",
    meaning="1: show the traceback of an error, not its message alone.",
)
ALLOW_CUDA_IN_LAUNCHER = Variable(
    "FLODL_ALLOW_CUDA_IN_LAUNCHER",
    type="0 or 1",
    default="0",
    reader="flodl.distributed.launch",
    meaning="1: a GPU touched before a run over several processes is a warning, not an error.",
)
ATTACH = Variable(
    "FLODL_ATTACH",
    type="run id",
    default="start a run",
    reader="flodl.distributed.launch",
    meaning="Run whose controller outlived its launcher: the same command takes it up again.",
)
COLOR = Variable(
    "FLODL_COLOR",
    type="auto, always or never",
    default="auto",
    reader="fdl",
    meaning="Whether output is colored, as --color; auto means on a terminal.",
)
DATA_PATH = Variable(
    "FLODL_DATA_PATH",
    type="folder",
    default="flodl/datasets in the user's cache folder",
    reader="flodl.data.datasets",
    meaning="Folder that holds the published data sets; missing files are fetched into it.",
)
DATA_SOURCE = Variable(
    "FLODL_DATA_SOURCE",
    type="real or mini",
    default="real",
    reader="flodl.data.datasets",
    meaning="mini: load the small sets that flodl brings along.",
)
HOME = Variable(
    "FLODL_HOME",
    type="folder",
    default="~/.flodl",
    reader="fdl",
    meaning="Folder for what belongs to no project, such as libtorch.",
)
HW_ROOT = Variable(
    "FLODL_HW_ROOT",
    type="folder",
    default="/",
    reader="flodl_sys.gpu",
    meaning="Folder that stands for / when GPU detection reads sys, dev and usr/lib/wsl.",
)
INTERNAL_ROLE = Variable(
    "FLODL_INTERNAL_ROLE",
    type="controller or rank",
    default="launcher",
    reader="flodl.distributed.launch",
    meaning="Set by flodl: what this process is in a run over several processes.",
)
INTERNAL_RUN = Variable(
    "FLODL_INTERNAL_RUN",
    type="JSON",
    default="unset",
    reader="flodl.distributed.launch",
    meaning="Set by flodl: the run that this process belongs to, and its place in it.",
)
INTERNAL_TOKEN = Variable(
    "FLODL_INTERNAL_TOKEN",
    type="text",
    default="unset",
    reader="flodl.distributed",
    meaning="Set by flodl: token of the run's control port.",
)
NCCL_PATH = Variable(
    "FLODL_NCCL_PATH",
    type="file",
    default="the NCCL of the environment, then the system's",
    reader="flodl_sys.nccl",
    meaning="NCCL library to load when none is loaded yet.",
)
NET_TIMEOUT_SCALE = Variable(
    "FLODL_NET_TIMEOUT_SCALE",
    type="number",
    default="1",
    reader="flodl.distributed",
    meaning="Factor of every timeout of a run over several processes.",
)
OFFLINE = Variable(
    "FLODL_OFFLINE",
    type="0 or 1",
    default="0",
    reader="flodl.data.datasets",
    meaning="1: never open a connection; a missing file is an error, as offline=True.",
)
SYS_NATIVE = Variable(
    "FLODL_SYS_NATIVE",
    type="0 or 1",
    default="native when a C++ toolchain is found, else pure",
    reader="the build of flodl-sys",
    meaning="1: a build without the native part is an error. 0: leave the native part out.",
)
TEST_DEVICE = Variable(
    "FLODL_TEST_DEVICE",
    type="torch device",
    default="cpu",
    reader="flodl's tests",
    meaning="Device that the tests of modules and optimizers run on.",
)
VERBOSITY = Variable(
    "FLODL_VERBOSITY",
    type="quiet, normal, verbose, debug, trace or 0 to 4",
    default="normal",
    reader="flodl, fdl",
    meaning="How much is said.",
)
ZYGOTE = Variable(
    "FLODL_ZYGOTE",
    type="0 or 1",
    default="1 on Linux, else 0",
    reader="flodl.distributed.hostd",
    meaning="0: each rank imports torch itself, where else all are copies of one process.",
)

DASHBOARD_BIND = Variable(
    "FLODL_DASHBOARD_BIND",
    type="address",
    default="127.0.0.1",
    reader="flodl.monitor",
    meaning="Address that the portal listens on where no host is given.",
)
DASHBOARD_TOKEN = Variable(
    "FLODL_DASHBOARD_TOKEN",
    type="text",
    default="none on loopback, else generated",
    reader="flodl.monitor",
    meaning="Token that viewers of the portal must know.",
)
FAKE_DEVICES = Variable(
    "FLODL_FAKE_DEVICES",
    type="number",
    default="the GPUs of this process",
    reader="Graph.distribute, Trainer.setup",
    meaning="Train a graph's own loop on this many replicas on the CPU, to try it without GPUs.",
)
RESOURCE_POLL_MS = Variable(
    "FLODL_RESOURCE_POLL_MS",
    type="number",
    default="250",
    reader="flodl.device.sampler",
    meaning="Milliseconds between two readings of CPU, memory and GPUs.",
)

VARIABLES: tuple[Variable, ...] = (
    BIN,
    ENV,
    GPU_FEATURE,
    LIBTORCH_CASE,
    LIBTORCH_MIRROR,
    NO_UPDATE_CHECK,
    PROJECT_ROOT,
    STRICT_ENV,
    TRACEBACK,
    ALLOW_CUDA_IN_LAUNCHER,
    ATTACH,
    COLOR,
    DASHBOARD_BIND,
    DASHBOARD_TOKEN,
    DATA_PATH,
    DATA_SOURCE,
    FAKE_DEVICES,
    HOME,
    HW_ROOT,
    INTERNAL_ROLE,
    INTERNAL_RUN,
    INTERNAL_TOKEN,
    NCCL_PATH,
    NET_TIMEOUT_SCALE,
    OFFLINE,
    RESOURCE_POLL_MS,
    SYS_NATIVE,
    TEST_DEVICE,
    VERBOSITY,
    ZYGOTE,
)
