// SPDX-License-Identifier: Apache-2.0
// In the place of libcuda.so.1 where there is no driver: what cuDNN asks one for when it makes a
// plan. It loads any code, names any kernel, and runs nothing.
namespace {

char loaded;
constexpr int kNoDriver = 34;  // CUDA_ERROR_STUB_LIBRARY

int hand_out(void** made) {
  *made = &loaded;
  return 0;
}

}  // namespace

#define REHEARSE_EXPORT extern "C" __attribute__((visibility("default"))) int
#define REHEARSE_MAKES(name)          \
  REHEARSE_EXPORT name(void** made) { \
    return hand_out(made);            \
  }
#define REHEARSE_SETS(name) \
  REHEARSE_EXPORT name() {  \
    return 0;               \
  }
#define REHEARSE_LACKS(name) \
  REHEARSE_EXPORT name() {   \
    return kNoDriver;        \
  }

REHEARSE_MAKES(cuLibraryLoadData)
REHEARSE_MAKES(cuLibraryGetKernel)
REHEARSE_MAKES(cuKernelGetFunction)
REHEARSE_SETS(cuKernelSetAttribute)
REHEARSE_SETS(cuFuncSetAttribute)
REHEARSE_SETS(cuLibraryUnload)
// Looked for, and not called.
REHEARSE_LACKS(cuCtxGetCurrent)
REHEARSE_LACKS(cuCtxGetLimit)
REHEARSE_LACKS(cuCtxPopCurrent)
REHEARSE_LACKS(cuCtxPushCurrent)
REHEARSE_LACKS(cuDeviceGet)
REHEARSE_LACKS(cuDeviceGetCount)
REHEARSE_LACKS(cuDriverGetVersion)
REHEARSE_LACKS(cuGetErrorName)
REHEARSE_LACKS(cuGetErrorString)
REHEARSE_LACKS(cuKernelGetAttribute)
REHEARSE_LACKS(cuLaunchCooperativeKernel)
REHEARSE_LACKS(cuLaunchKernel)
REHEARSE_LACKS(cuLaunchKernelEx)
REHEARSE_LACKS(cuLibraryLoadFromFile)
REHEARSE_LACKS(cuLinkAddData)
REHEARSE_LACKS(cuLinkComplete)
REHEARSE_LACKS(cuLinkCreate)
REHEARSE_LACKS(cuLinkDestroy)
REHEARSE_LACKS(cuOccupancyMaxPotentialClusterSize)
REHEARSE_LACKS(cuStreamGetCtx)
