import torch

from flodl.engine.fallback import (
    CaptureAbandoned,
    CaptureReason,
    ReasonCode,
    announce,
    reason_of,
    user_location,
)


def test_the_one_line_names_mode_code_message_place_and_remedy(caplog):
    reason = CaptureReason.of(ReasonCode.HOST_SYNC, "the step reads a value", "train.py:7")
    announce("eager", reason)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message == (
        "capture: falling back to eager: host_sync: the step reads a value at train.py:7; "
        "keep values on the GPU: return or record tensors, use torch.where"
    )


def failed(first, last=None):
    try:
        try:
            raise first
        finally:
            if last is not None:
                raise last
    except RuntimeError as error:
        return reason_of(error)
    except CaptureAbandoned as error:
        return reason_of(error)


def test_the_cause_is_taken_from_the_first_error_of_the_chain():
    first = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    reason = failed(first, RuntimeError("operation failed due to a previous error"))
    assert reason.code == "host_sync"
    assert "not permitted" in reason.message
    assert "test_fallback.py:" in reason.location


def test_memory_and_own_reasons_are_recognized():
    assert failed(torch.OutOfMemoryError("CUDA out of memory")).code == "oom"
    known = CaptureReason.of(ReasonCode.HOOK_SIDE_EFFECT, "numbers")
    assert failed(CaptureAbandoned(known)) is known
    assert failed(RuntimeError("something new")).code == "cuda_error"


def test_the_place_is_that_of_the_user():
    assert "test_fallback.py:" in user_location()


def test_the_codes_are_the_documented_ones():
    assert {str(code) for code in ReasonCode} == set(
        """no_gpu disabled host_sync cpu_tensor_op dynamic_shape data_dependent_node
        optimizer_not_capturable scaler_syncs hook_side_effect stream_mismatch oom batch_split
        rng_generator verify_mismatch too_many_signatures baked_scalar cuda_error""".split()
    )
