"""Other CPUs of this architecture, for which LLVM compiles by name and features."""

from layoutkit.kernels.cpu import compiler

SSE2 = "+sse,+sse2,+cx8,+fxsr,+mmx"
SSE4 = SSE2 + ",+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
AVX2 = SSE4 + ",+avx,+avx2,+f16c,+fma,+bmi,+bmi2,+lzcnt,+movbe,+xsave"
AVX512 = AVX2 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
CPUS = {  # LLVM's name, features, 128-bit lanes of a register
    "sse2": ("x86-64", SSE2, 1),
    "sse4": ("nehalem", SSE4, 1),
    "avx2": ("x86-64-v3", AVX2, 2),
    "avx512": ("x86-64-v4", AVX512, 4),
}


def named(name):
    """Return the environment variables with which a process compiles for one of CPUS."""
    cpu, features, _ = CPUS[name]
    return {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}


def lacking(name):
    """Return the features of one of CPUS that this machine does not have."""
    here = compiler._llvm().get_host_cpu_features()
    return [feature for feature in CPUS[name][1].split(",") if not here.get(feature[1:])]
