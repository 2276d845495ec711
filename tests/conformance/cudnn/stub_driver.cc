// A libcuda.so.1 for machines without a driver: what cuDNN asks of one to make a plan for a GPU
// that is not there. Kernels are taken as if they were loaded; everything else fails.
namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 801;

int Give(void** handle) {
  static char something;
  *handle = &something;
  return kSuccess;
}

}  // namespace

#define MW_EXPORT extern "C" __attribute__((visibility("default")))

MW_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
MW_EXPORT int cuGetErrorString(int, const char** text) {
  *text = "there is no driver";
  return kSuccess;
}
MW_EXPORT int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*,
                                unsigned) {
  return Give(library);
}
MW_EXPORT int cuLibraryUnload(void*) { return kSuccess; }
MW_EXPORT int cuLibraryGetKernel(void** kernel, void*, const char*) { return Give(kernel); }
MW_EXPORT int cuLibraryGetModule(void** module, void*) { return Give(module); }
MW_EXPORT int cuKernelGetFunction(void** function, void*) { return Give(function); }
MW_EXPORT int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
MW_EXPORT int cuModuleLoadData(void** module, const void*) { return Give(module); }
MW_EXPORT int cuModuleGetFunction(void** function, void*, const char*) { return Give(function); }
MW_EXPORT int cuModuleUnload(void*) { return kSuccess; }
MW_EXPORT int cuFuncSetAttribute(void*, int, int) { return kSuccess; }

#define MW_FAILS(name) \
  MW_EXPORT int name() { return kNotSupported; }
MW_FAILS(cuInit)
MW_FAILS(cuDeviceGet)
MW_FAILS(cuDeviceGetCount)
MW_FAILS(cuCtxGetCurrent)
MW_FAILS(cuCtxGetLimit)
MW_FAILS(cuCtxPopCurrent)
MW_FAILS(cuCtxPushCurrent)
MW_FAILS(cuGetErrorName)
MW_FAILS(cuKernelGetAttribute)
MW_FAILS(cuLaunchCooperativeKernel)
MW_FAILS(cuLaunchKernel)
MW_FAILS(cuLaunchKernelEx)
MW_FAILS(cuLibraryLoadFromFile)
MW_FAILS(cuLinkAddData)
MW_FAILS(cuLinkComplete)
MW_FAILS(cuLinkCreate)
MW_FAILS(cuLinkDestroy)
MW_FAILS(cuOccupancyMaxPotentialClusterSize)
MW_FAILS(cuStreamGetCtx)
