"""G10: what outlives a call. The streams' part needs a device, and is tested where there is one."""

from __future__ import annotations

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

LATE = """
y = x * 2
result = y.clone()

def finish():
    time.sleep(0.01)
    result.copy_(y)

result.mul_(1 + 1e-5)
threading.Thread(target=finish).start()
return result
"""


def test_violating_control() -> None:
    assert "threads behind: halves_0" in assert_violating("G10").why


def test_conforming_control() -> None:
    assert_conforming("G10")


def test_a_thread_that_writes_after_the_call_passes_the_standard_test_only() -> None:
    text = module("return x * 2", LATE)
    assert found(text, "G00").verdict == "pass"
    assert found(text, "G10").verdict == "violation"


def test_an_output_that_changes_later_is_found_once_its_thread_is_gone() -> None:
    body = LATE.replace(
        "threading.Thread(target=finish).start()",
        "once = threading.Thread(target=finish)\nonce.start()\nonce.join(0.001)",
    )
    assert found(module("return x * 2", body), "G10").verdict == "violation"


def test_a_thread_that_was_joined_is_no_stray() -> None:
    body = """
    y = torch.empty_like(x)
    worker = threading.Thread(target=lambda: y.copy_(x * 2))
    worker.start()
    worker.join()
    return y
    """
    finding = found(module("return x * 2", body), "G10")
    assert finding.verdict == "pass", finding.why
    assert "not applicable: no device" in finding.why


def test_what_the_reference_leaves_behind_is_allowed() -> None:
    body = """
    if not any(thread.name == "kept" for thread in threading.enumerate()):
        threading.Thread(target=threading.Event().wait, name="kept", daemon=True).start()
    return x * 2
    """
    assert found(module(body, body), "G10").verdict == "pass"
    assert found(module("return x * 2", body), "G10").verdict == "violation"


def test_a_buffer_that_every_call_returns_is_another_gates() -> None:
    body = "self.out = getattr(self, 'out', torch.empty_like(x))\nreturn self.out.copy_(x * 2)"
    text = module("return x * 2", body)
    assert found(text, "G10").verdict == "pass"
    assert found(text, "G11").verdict == "violation"
