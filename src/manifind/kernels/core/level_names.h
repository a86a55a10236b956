// The name of what is compiled once for each instruction set, MANIFIND_LEVEL: LEVEL_NAME(kernels) is kernels_avx2, say.
#pragma once

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME_(a) #a
#define NAME(a) NAME_(a)
#define LEVEL_NAME(a) JOIN(a, MANIFIND_LEVEL)
#define LEVEL_STRING NAME(MANIFIND_LEVEL)
