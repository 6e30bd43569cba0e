/* device/nvml_functions.h: the NVML functions that neap uses, or that others expect of the simulator, once. No
 * include guard: include it with X defined.
 *
 *   X(need, type, name, newest, older, (parameters))
 *
 *   need    REQUIRED: without it NVML is unusable.  OPTIONAL: the pointer may be NULL
 *   newest  the symbol tried first; `older` the next one (the same layout), or 0 for none
 */
X(REQUIRED, nvmlReturn_t, nvmlInit, nvmlInit_v2, 0, (void))
X(REQUIRED, nvmlReturn_t, nvmlShutdown, nvmlShutdown, 0, (void))
X(OPTIONAL, const char *, nvmlErrorString, nvmlErrorString, 0, (nvmlReturn_t result))
X(OPTIONAL, nvmlReturn_t, nvmlSystemGetDriverVersion, nvmlSystemGetDriverVersion, 0,
  (char *text, unsigned int capacity))
X(REQUIRED, nvmlReturn_t, nvmlDeviceGetCount, nvmlDeviceGetCount_v2, 0, (unsigned int *count))
X(REQUIRED, nvmlReturn_t, nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, 0,
  (unsigned int index, nvmlDevice_t *device))
X(REQUIRED, nvmlReturn_t, nvmlDeviceGetUUID, nvmlDeviceGetUUID, 0,
  (nvmlDevice_t device, char *text, unsigned int capacity))
X(REQUIRED, nvmlReturn_t, nvmlDeviceGetName, nvmlDeviceGetName, 0,
  (nvmlDevice_t device, char *text, unsigned int capacity))
X(REQUIRED, nvmlReturn_t, nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo, 0,
  (nvmlDevice_t device, nvmlMemory_t *memory))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo_v2, 0,
  (nvmlDevice_t device, nvmlMemory_v2_t *memory))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v3,
  nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetUtilizationRates, nvmlDeviceGetUtilizationRates, 0,
  (nvmlDevice_t device, nvmlUtilization_t *utilization))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetTemperature, nvmlDeviceGetTemperature, 0,
  (nvmlDevice_t device, unsigned int sensor, unsigned int *celsius))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetPowerUsage, nvmlDeviceGetPowerUsage, 0,
  (nvmlDevice_t device, unsigned int *milliwatts))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetEnforcedPowerLimit, 0,
  (nvmlDevice_t device, unsigned int *milliwatts))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetClockInfo, nvmlDeviceGetClockInfo, 0,
  (nvmlDevice_t device, unsigned int clock, unsigned int *mhz))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetProcessUtilization, nvmlDeviceGetProcessUtilization, 0,
  (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v3, 0, (nvmlDevice_t device, nvmlPciInfo_t *pci))
X(OPTIONAL, nvmlReturn_t, nvmlDeviceGetMinorNumber, nvmlDeviceGetMinorNumber, 0,
  (nvmlDevice_t device, unsigned int *minor))
