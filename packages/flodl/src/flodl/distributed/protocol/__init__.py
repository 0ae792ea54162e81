"""What hosts, ranks and the controller say to each other, and how it is written.

Messages live in ``protocol.messages``, the plain values in them in ``protocol.values``.
"""

from flodl.distributed.protocol.codec import MAX_FRAME_BYTES as MAX_FRAME_BYTES
from flodl.distributed.protocol.codec import PROTOCOL as PROTOCOL
from flodl.distributed.protocol.codec import Frame as Frame
from flodl.distributed.protocol.codec import UnknownFrame as UnknownFrame
from flodl.distributed.protocol.codec import decode as decode
from flodl.distributed.protocol.codec import encode as encode
from flodl.distributed.protocol.delivery import GenerationGate as GenerationGate
from flodl.distributed.protocol.delivery import Inbox as Inbox
from flodl.distributed.protocol.delivery import Outbox as Outbox
from flodl.distributed.protocol.delivery import ResendGapError as ResendGapError
from flodl.distributed.protocol.errors import FrameError as FrameError
from flodl.distributed.protocol.messages import Message as Message
