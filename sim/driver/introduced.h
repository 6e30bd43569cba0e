/* sim/driver/introduced.h: the version of CUDA that introduced each function, with the parameters that it has here:
 * cuGetProcAddress does not find it for an older one. Functions with addresses of 32 bits (CUDA 2 and 3) are not
 * simulated. No include guard: include it inside an array's initialiser.
 *
 * Source: cudaTypedefs.h of CUDA 13.0, which sim_names compares where it is installed. */
/* clang-format off */
	{2000, "cuInit cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuCtxPushCurrent "
	 "cuCtxPopCurrent cuCtxGetDevice cuCtxSynchronize cuMemFreeHost cuStreamCreate cuStreamDestroy "
	 "cuStreamSynchronize cuStreamQuery cuEventCreate cuEventDestroy cuEventRecord cuEventQuery "
	 "cuEventSynchronize cuDeviceComputeCapability cuCtxCreate cuCtxDestroy cuModuleLoad "
	 "cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction cuEventElapsedTime"},
	{2010, "cuModuleLoadDataEx"},
	{2020, "cuDriverGetVersion cuMemHostAlloc cuFuncGetAttribute"},
	{2030, "cuMemHostGetFlags"},
	{3000, "cuFuncSetCacheConfig"},
	{3010, "cuCtxGetLimit cuCtxSetLimit"},
	{3020, "cuDeviceTotalMem cuMemGetInfo cuMemAlloc cuMemFree cuMemGetAddressRange cuMemcpyHtoD "
	 "cuMemcpyDtoH cuMemcpyDtoD cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemsetD8 "
	 "cuMemsetD32 cuMemsetD8Async cuMemsetD32Async cuStreamWaitEvent cuCtxGetApiVersion "
	 "cuCtxGetCacheConfig cuCtxSetCacheConfig cuModuleGetGlobal cuMemAllocHost cuMemAllocPitch "
	 "cuMemHostGetDevicePointer cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy2DAsync cuMemcpy3D "
	 "cuMemcpy3DAsync cuMemsetD16 cuMemsetD16Async cuMemsetD2D8 cuMemsetD2D16 cuMemsetD2D32 "
	 "cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async"},
	{4000, "cuCtxGetCurrent cuCtxSetCurrent cuPointerGetAttribute cuDeviceCanAccessPeer "
	 "cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuProfilerStart cuProfilerStop cuLaunchKernel "
	 "cuMemHostRegister cuMemHostUnregister cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync"},
	{4010, "cuDeviceGetPCIBusId cuDeviceGetByPCIBusId cuIpcGetMemHandle cuIpcOpenMemHandle "
	 "cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle"},
	{4020, "cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig"},
	{5000, "cuStreamAddCallback"},
	{5050, "cuCtxGetStreamPriorityRange cuLinkCreate cuLinkAddData cuLinkAddFile cuLinkComplete "
	 "cuLinkDestroy cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags"},
	{6000, "cuGetErrorName cuGetErrorString cuStreamAttachMemAsync cuMemAllocManaged cuPointerSetAttribute"},
	{6050, "cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize"},
	{7000, "cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuDevicePrimaryCtxGetState "
	 "cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxReset cuCtxGetFlags "
	 "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags "
	 "cuPointerGetAttributes"},
	{8000, "cuDeviceGetP2PAttribute cuStreamWriteValue32 cuStreamWaitValue32 cuMemPrefetchAsync cuMemAdvise "
	 "cuMemRangeGetAttribute"},
	{9000, "cuFuncSetAttribute cuLaunchCooperativeKernel cuStreamWriteValue64 cuStreamWaitValue64"},
	{9020, "cuDeviceGetUuid cuStreamGetCtx"},
	{10000, "cuStreamIsCapturing cuStreamEndCapture cuGraphDestroy cuLaunchHostFunc cuDeviceGetLuid "
	 "cuGraphCreate cuGraphClone cuGraphAddEmptyNode cuGraphGetNodes cuGraphGetRootNodes "
	 "cuGraphGetEdges cuGraphNodeGetType cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes "
	 "cuGraphInstantiate cuGraphLaunch cuGraphExecDestroy"},
	{10010, "cuStreamBeginCapture cuThreadExchangeStreamCaptureMode"},
	{10020, "cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess "
	 "cuMemGetAllocationGranularity cuOccupancyAvailableDynamicSMemPerBlock "
	 "cuMemExportToShareableHandle cuMemImportFromShareableHandle "
	 "cuMemGetAllocationPropertiesFromHandle cuMemGetAccess"},
	{11000, "cuCtxResetPersistingL2Cache cuFuncGetModule cuStreamGetAttribute cuStreamSetAttribute "
	 "cuStreamCopyAttributes cuMemRetainAllocationHandle"},
	{11010, "cuDeviceGetTexture1DLinearMaxWidth cuEventRecordWithFlags cuGraphUpload"},
	{11020, "cuMemAllocAsync cuMemFreeAsync cuDeviceGetDefaultMemPool cuMemPoolTrimTo cuMemPoolSetAttribute "
	 "cuMemPoolGetAttribute cuDeviceGetMemPool cuDeviceSetMemPool cuMemPoolCreate cuMemPoolDestroy "
	 "cuMemPoolSetAccess cuMemPoolGetAccess cuMemAllocFromPoolAsync cuMemPoolExportToShareableHandle "
	 "cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer"},
	{11030, "cuFlushGPUDirectRDMAWrites cuStreamGetCaptureInfo cuStreamUpdateCaptureDependencies "
	 "cuGraphDebugDotPrint cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease "
	 "cuGraphRetainUserObject cuGraphReleaseUserObject cuGetProcAddress"},
	{11040, "cuDeviceGetExecAffinitySupport cuGraphInstantiateWithFlags cuDeviceGetGraphMemAttribute "
	 "cuDeviceSetGraphMemAttribute cuDeviceGraphMemTrim"},
	{11060, "cuLaunchKernelEx"},
	{11070, "cuModuleGetLoadingMode cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters "
	 "cuMemGetHandleForAddressRange"},
	{12000, "cuCtxGetId cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel "
	 "cuLibraryGetModule cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction "
	 "cuKernelGetFunction cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig "
	 "cuTensorMapEncodeTiled cuStreamGetId cuGraphInstantiateWithParams cuGraphExecGetFlags "
	 "cuGraphExecUpdate"},
	{12010, "cuCtxSetFlags cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastUnbind "
	 "cuMulticastGetGranularity"},
	{12030, "cuKernelGetName cuFuncGetName cuStreamBeginCaptureToGraph cuGraphAddNode "
	 "cuGraphConditionalHandleCreate"},
	{12040, "cuDeviceGetDevResource cuDevSmResourceSplitByCount cuDevResourceGenerateDesc cuGreenCtxCreate "
	 "cuGreenCtxDestroy cuCtxFromGreenCtx cuLibraryGetKernelCount cuLibraryEnumerateKernels "
	 "cuFuncIsLoaded cuFuncLoad"},
	{12050, "cuGreenCtxStreamCreate cuKernelGetLibrary"},
	{12080, "cuStreamGetDevice"},
	{12090, "cuLogsRegisterCallback cuLogsUnregisterCallback"},
	/* clang-format on */
