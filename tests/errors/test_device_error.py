"""What a failing device says."""

from tilewright.base.errors import DeviceError


def test_the_text_is_the_message_and_the_code_is_beside_it() -> None:
    error = DeviceError("dispatch 3 failed", code=13, location="local-task")
    assert str(error) == "local-task: dispatch 3 failed"
    assert error.code == 13
