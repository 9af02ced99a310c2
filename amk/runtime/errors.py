"""Failures of a running model."""

from __future__ import annotations

from amk.errors import DeviceError, UsageError


class SupersededError(UsageError):
    code = "AMK-R610"
    what = "another generation was started on this model before this stream had ended"
    mend = "finish or drop a stream before starting the next; load the model twice to run two at once"


class TooManyEosError(UsageError):
    code = "AMK-R611"
    what = "{count} end-of-text tokens were given, and a launch checks at most {most}"
    mend = "pass fewer ids as eos_token_id"


class StreamCaptureError(UsageError):
    code = "AMK-R612"
    what = "this thread is capturing its CUDA stream into a graph, and a launch of amk cannot be part of one"
    mend = "call the model outside of the capture: before `torch.cuda.graph` begins or after it has ended"


class DriverError(DeviceError):
    code = "AMK-R602"
    what = "{call} failed: {status} ({why})"
    mend = "`amk doctor` says whether the driver and the device are as they should be"


class OldDriverError(DeviceError):
    code = "AMK-R606"
    what = "the driver speaks CUDA {found}, and kernels built by NVRTC {built} need {need} or later"
    mend = "install a newer NVIDIA driver, or an nvidia-cuda-nvrtc of the driver's major version"


class WrongDeviceError(DeviceError):
    code = "AMK-R603"
    what = "the program was compiled for {wanted}, and device {ordinal} is {found}"
    mend = "compile with arch={arch!r} on this machine, or choose another device"


class GridTooLargeError(DeviceError):
    code = "AMK-R604"
    what = "the program needs {workers} blocks running at once, and {name} holds {most}"
    mend = "compile on this machine, or for a target with at most {most} workers"


class WatchdogError(DeviceError):
    code = "AMK-R605"
    what = (
        "a wait ran out after {seconds} s: {task} (worker {worker}, step {step}) waits for {awaited} "
        "({others} other waits were open)"
    )
    mend = "raise AMK_WATCHDOG_S if the device is shared or profiled; otherwise this is a defect: please report it"


class HostCrashError(DeviceError):
    code = "AMK-R613"
    what = "the kernel's process on this processor ended with code {code}:\n{log}"
    mend = "this is a defect in amk or in what watched the kernel: please report it with this message"


class HostMemoryError(DeviceError):
    code = "AMK-R614"
    what = "the model needs {need} bytes of memory, and the kernel's process maps {most}"
    mend = "use a smaller model or max_context"


class HopTimeoutError(DeviceError):
    code = "AMK-R615"
    what = "a hop between the blocks of a measurement took more than {seconds} s"
    mend = "raise AMK_WATCHDOG_S if the device is shared; otherwise its blocks do not run at once: please report it"
