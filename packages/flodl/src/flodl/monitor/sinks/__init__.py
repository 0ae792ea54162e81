"""Where a run's records can go besides its own files and page; each target needs its library."""

from flodl.monitor.sinks.mlflow import MLflowSink as MLflowSink
from flodl.monitor.sinks.otlp import OtlpSink as OtlpSink
from flodl.monitor.sinks.tensorboard import TensorBoardSink as TensorBoardSink
from flodl.monitor.sinks.wandb import WandbSink as WandbSink
from flodl.monitor.sinks.webhook import WebhookSink as WebhookSink

__all__ = ["MLflowSink", "OtlpSink", "TensorBoardSink", "WandbSink", "WebhookSink"]
