/* Values of NEAP_SIM, the devices that a process sees, names of errors, and NVML's view. */
#include "sim_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_spec parsed(const char *text)
{
	struct sim_spec spec = {0};
	struct neap_error err = {0};

	if (sim_spec_parse(text, &spec, &err) != NEAP_OK)
		fail_msg("'%s': %s", text ? text : "(null)", err.message);
	return spec;
}

static void specs_say_what_to_simulate(void **state)
{
	(void)state;
	struct sim_spec spec = parsed(NULL);
	assert_string_equal(spec.world, "h100-80gb");
	assert_int_equal(spec.device_count, 1);
	assert_int_equal(spec.total_bytes, 81559 * MIB);
	spec = parsed("2xA100-40gb");
	assert_int_equal(spec.device_count, 2);
	assert_string_equal(spec.world, "2xa100-40gb");
	assert_string_equal(spec.gpu_name, "NVIDIA A100-SXM4-40GB");
	assert_int_equal(spec.compute_major, 8);
	spec = parsed("mem=6GiB,gpus=3,world=mine,context=450MiB,reserved=1MiB,release_delay=300ms,backing=none");
	assert_int_equal(spec.total_bytes, 6ull << 30);
	assert_int_equal(spec.device_count, 3);
	assert_string_equal(spec.world, "mine");
	assert_int_equal(spec.context_bytes, 450 * MIB);
	assert_int_equal(spec.reserved_bytes, 2 * MIB); /* whole pages */
	assert_int_equal(spec.release_delay_ns, 300000000);
	assert_true(spec.no_backing);
	spec = parsed("world=w,rtx4090-24gb,values_memory=1.5GiB");
	assert_string_equal(spec.world, "w");
	assert_int_equal(spec.values_memory_bytes, 1536 * MIB);
	assert_true(spec.values_memory_given);
	assert_int_equal(spec.total_bytes, 24564 * MIB);
	assert_string_not_equal(parsed("mem=6GiB").world, parsed("mem=7GiB").world);
	assert_string_not_equal(parsed("mem=6GiB").world, parsed("mem=6GiB,gpus=2").world);
}

static void bad_specs_are_pointed_at(void **state)
{
	static const struct {
		const char *text;
		uint32_t column;
		const char *says;
	} bad[] = {
		{"h100", 1, "profile"},
		{"0xh100-80gb", 1, "1 to 16"},
		{"17xh100-80gb", 1, "1 to 16"},
		{"99999999xh100-80gb", 1, "profile"},
		{"mem=6GiB,gpus=0", 10, "1 to 16"},
		{"mem=6GiB,gpus=two", 10, "1 to 16"},
		{"mem=six", 1, "size"},
		{"mem=17TiB", 1, "size"},
		{"mem=6GiB,colour=red", 10, "unknown key"},
		{"mem=6GiB,,gpus=2", 10, "empty"},
		{"mem=6GiB,", 10, "empty"},
		{"world=", 1, "name"},
		{"world=../etc/passwd", 1, "name"},
		{"world=.hidden", 1, "name"},
		{"world=0123456789012345678901234567890123456789012345678901234567890123456789", 1, "name"},
		{"backing=disk", 1, "none"},
		{"vmm=maybe", 1, "off"},
		{"mem=6GiB,values_memory=-1", 10, "size"},
		{"values_memory=", 1, "size"},
		{"values_memory=99999999999999999999GiB", 1, "size"},
		{"order=random", 1, "reversed"},
		{"release_delay=soon", 1, "time"},
		{"mem=64MiB,context=65MiB", 0, "no room"},
		{"mem=0", 0, "no room"},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct sim_spec spec = {.device_count = 77};
		struct neap_error err = {0};

		if (sim_spec_parse(bad[i].text, &spec, &err) != NEAP_EPARSE)
			fail_msg("'%s' was taken", bad[i].text);
		assert_int_equal(spec.device_count, 77);
		if (!strstr(err.message, bad[i].says) || err.column != bad[i].column)
			fail_msg("'%s': column %u, %s", bad[i].text, err.column, err.message);
	}
}

static void a_bad_spec_fails_both_libraries_and_they_say_why(void **state)
{
	const char *message = NULL;
	struct neap_sim_fault_report report;

	(void)state;
	sim_name_world("bad", "mem=256MiB");
	setenv("NEAP_SIM", "gtx9000", 1);
	assert_answer(t.cuda.cuInit(0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &message));
	assert_non_null(strstr(message, "gtx9000"));
	t.sim->report(&report);
	assert_non_null(strstr(report.text, "gtx9000"));
	int count;
	assert_answer(t.cuda.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(t.nvml.nvmlInit(), NVML_ERROR_INVALID_ARGUMENT);
	assert_non_null(strstr(t.nvml.nvmlErrorString(NVML_ERROR_INVALID_ARGUMENT), "gtx9000"));
	assert_int_equal(t.nvml.nvmlDeviceGetCount((unsigned int *)&count), NVML_ERROR_UNINITIALIZED);
}

static int visible(const char *list)
{
	int count = 0;
	CUresult result;

	if (list)
		setenv("CUDA_VISIBLE_DEVICES", list, 1);
	else
		unsetenv("CUDA_VISIBLE_DEVICES");
	result = t.cuda.cuInit(0);
	if (result == CUDA_ERROR_NO_DEVICE)
		return 0;
	assert_ok(result);
	assert_ok(t.cuda.cuDeviceGetCount(&count));
	return count;
}

/* CUDA's order is independent: NVML's does not change with it. */
static void devices_come_in_another_order(void **state)
{
	CUuuid forth[3], back;
	char text[48];
	nvmlDevice_t device;
	char world[64];

	(void)state;
	sim_name_world("order", "mem=256MiB,gpus=3");
	assert_int_equal(visible(NULL), 3);
	for (int i = 0; i < 3; i++)
		assert_ok(t.cuda.cuDeviceGetUuid(&forth[i], i));
	sim_name_world("order", "mem=256MiB,gpus=3,order=reversed");
	assert_int_equal(visible(NULL), 3);
	for (int i = 0; i < 3; i++) {
		assert_ok(t.cuda.cuDeviceGetUuid(&back, i));
		assert_memory_equal(&back, &forth[2 - i], sizeof back);
	}
	assert_int_equal(visible("0"), 1);
	assert_ok(t.cuda.cuDeviceGetUuid(&back, 0));
	assert_memory_equal(&back, &forth[2], sizeof back);
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetUUID(device, world, sizeof world), NVML_SUCCESS);
	sim_uuid_format((unsigned char *)forth[0].bytes, text);
	assert_string_equal(world, text);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	assert_int_equal(visible(NULL), 3);
	assert_ok(t.cuda.cuDeviceGetUuid(&back, 0));
	assert_memory_equal(&back, &forth[0], sizeof back);
	unsetenv("CUDA_DEVICE_ORDER");
}

static void visible_devices_are_chosen_as_the_driver_does(void **state)
{
	CUuuid all[3], seen;
	char text[48], list[200];
	int i;

	(void)state;
	sim_name_world("visible", "mem=256MiB,gpus=3");
	assert_int_equal(visible(NULL), 3);
	for (i = 0; i < 3; i++)
		assert_ok(t.cuda.cuDeviceGetUuid(&all[i], i));
	assert_memory_not_equal(&all[0], &all[1], sizeof all[0]);
	assert_int_equal(visible("2,0"), 2);
	assert_ok(t.cuda.cuDeviceGetUuid(&seen, 0));
	assert_memory_equal(&seen, &all[2], sizeof seen);
	assert_ok(t.cuda.cuDeviceGetUuid(&seen, 1));
	assert_memory_equal(&seen, &all[0], sizeof seen);
	sim_uuid_format((unsigned char *)all[1].bytes, text);
	snprintf(list, sizeof list, "%s,2", text);
	assert_int_equal(visible(list), 2);
	assert_ok(t.cuda.cuDeviceGetUuid(&seen, 0));
	assert_memory_equal(&seen, &all[1], sizeof seen);
	text[16] = '\0'; /* a prefix will do */
	assert_int_equal(visible(text), 1);
	assert_int_equal(visible("1,9,0"), 1); /* up to the first that does not exist */
	assert_int_equal(visible("1,1"), 0);
	assert_int_equal(visible("GPU-"), 0); /* fits more than one */
	assert_int_equal(visible(""), 0);
	assert_int_equal(visible("-1"), 0);
	assert_int_equal(visible(NULL), 3);
}

static void devices_describe_themselves(void **state)
{
	char text[96];
	int value;
	size_t total;

	(void)state;
	sim_begin("describe", "a100-40gb");
	assert_ok(t.cuda.cuDeviceGetName(text, sizeof text, 0));
	assert_string_equal(text, "NVIDIA A100-SXM4-40GB");
	assert_ok(t.cuda.cuDeviceGetName(text, 7, 0));
	assert_string_equal(text, "NVIDIA");
	assert_ok(t.cuda.cuDeviceTotalMem(&total, 0));
	assert_int_equal(total, (40960 - 420) * MIB);
	assert_ok(t.cuda.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	assert_int_equal(value, 8);
	assert_ok(t.cuda.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
	assert_int_equal(value, 0x17);
	assert_ok(t.cuda.cuDeviceGetPCIBusId(text, sizeof text, 0));
	assert_string_equal(text, "0000:17:00.0");
	assert_answer(t.cuda.cuDeviceGetAttribute(&value, 123456, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuDeviceGetAttribute(&value, 16, 1), CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuDeviceGetName(text, sizeof text, -1), CUDA_ERROR_INVALID_DEVICE);
	sim_end();
}

/* Features that the simulator lacks answer "not supported" for any arguments, and their attributes are 0. */
static void what_is_lacking_is_refused(void **state)
{
	static const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
							CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
							CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR};
	const struct {
		const char *name;
		const void *function; /* the place for a pointer to it */
	} lacking[] = {
#define ROW(name) {#name, &t.cuda.name}
		ROW(cuGreenCtxCreate),
		ROW(cuGreenCtxStreamCreate),
		ROW(cuMulticastCreate),
		ROW(cuMulticastBindMem),
		ROW(cuLinkCreate),
		ROW(cuLinkComplete),
		ROW(cuStreamWriteValue32),
		ROW(cuStreamWaitValue32),
		ROW(cuStreamWriteValue64),
		ROW(cuStreamWaitValue64),
		ROW(cuStreamGetAttribute),
		ROW(cuStreamSetAttribute),
		ROW(cuStreamCopyAttributes),
		ROW(cuMemPoolExportToShareableHandle),
		ROW(cuMemPoolImportFromShareableHandle),
		ROW(cuMemPoolExportPointer),
		ROW(cuMemPoolImportPointer),
		ROW(cuGraphAddNode_v2),
		ROW(cuGraphConditionalHandleCreate),
#undef ROW
	};
	CUresult (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *);
	int value = -1;

	(void)state;
	sim_begin("lacking", "mem=64MiB");
	for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
		memcpy(&function, lacking[i].function, sizeof function);
		if (function(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) != CUDA_ERROR_NOT_SUPPORTED)
			fail_msg("%s is not refused", lacking[i].name);
	}
	for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
		assert_ok(t.cuda.cuDeviceGetAttribute(&value, attributes[i], 0));
		assert_int_equal(value, 0);
	}
	sim_end();
}

static void errors_have_names(void **state)
{
	const char *text;

	(void)state;
	assert_ok(t.cuda.cuGetErrorName(700, &text));
	assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_ok(t.cuda.cuGetErrorString(2, &text));
	assert_string_equal(text, "out of memory");
#define X(type, name, value)                                                                                         \
	if (strcmp(#type, "CUresult") == 0) {                                                                        \
		assert_ok(t.cuda.cuGetErrorName(value, &text));                                                      \
		assert_string_equal(text, #name);                                                                    \
		assert_ok(t.cuda.cuGetErrorString(value, &text));                                                    \
		assert_true(strlen(text) > 5);                                                                       \
	}
#include "device/cuda_constants.h"
#undef X
	assert_answer(t.cuda.cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
}

/* -- NVML -------------------------------------------------------------------------------------------------------- */

static void memory_sums_in_both_versions(void **state)
{
	nvmlMemory_v2_t two = {.version = NVML_MEMORY_V2};
	nvmlMemory_t one;
	nvmlDevice_t device;
	CUdeviceptr address;

	(void)state;
	sim_begin("nvml", "mem=256MiB,context=10MiB,reserved=6MiB");
	assert_ok(t.cuda.cuMemAlloc(&address, 20 * MIB));
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo(device, &one), NVML_SUCCESS);
	assert_int_equal(one.total, 256 * MIB);
	assert_int_equal(one.used, 36 * MIB);
	assert_int_equal(one.used + one.free, one.total);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo_v2(device, &two), NVML_SUCCESS);
	assert_int_equal(two.reserved, 6 * MIB);
	assert_int_equal(two.used, 30 * MIB);
	assert_int_equal(two.reserved + two.used + two.free, two.total);
	two.version = 1;
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo_v2(device, &two), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo(device, &one), NVML_ERROR_UNINITIALIZED);
	assert_ok(t.cuda.cuMemFree(address));
	sim_end();
}

static void processes_are_listed_with_their_bytes(void **state)
{
	nvmlProcessInfo_t list[4];
	unsigned int count = 0;
	nvmlDevice_t device;
	CUdeviceptr address;

	(void)state;
	sim_begin("list", "mem=256MiB,context=10MiB");
	assert_ok(t.cuda.cuMemAlloc(&address, 20 * MIB));
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetComputeRunningProcesses(device, &count, NULL),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(count, 1);
	count = 4;
	assert_int_equal(t.nvml.nvmlDeviceGetComputeRunningProcesses(device, &count, list), NVML_SUCCESS);
	assert_int_equal(count, 1);
	assert_int_equal(list[0].pid, getpid());
	assert_int_equal(list[0].usedGpuMemory, 30 * MIB);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	setenv("NEAP_SIM_NVML", "no-process-bytes", 1);
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	count = 4;
	assert_int_equal(t.nvml.nvmlDeviceGetComputeRunningProcesses(device, &count, list), NVML_SUCCESS);
	assert_int_equal(count, 1);
	assert_true(list[0].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	setenv("NEAP_SIM_NVML", "unified", 1);
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo(device, &(nvmlMemory_t){0}), NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo_v2(device, &(nvmlMemory_v2_t){.version = NVML_MEMORY_V2}),
			 NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	setenv("NEAP_SIM_NVML", "something", 1);
	assert_int_equal(t.nvml.nvmlInit(), NVML_ERROR_INVALID_ARGUMENT);
	unsetenv("NEAP_SIM_NVML");
	assert_ok(t.cuda.cuMemFree(address));
	sim_end();
}

static void a_hidden_process_uses_but_is_not_listed(void **state)
{
	nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
	unsigned int count = 0;
	nvmlDevice_t device;

	(void)state;
	sim_name_world("hidden", "mem=256MiB,context=10MiB");
	setenv("NEAP_SIM_HIDDEN", "1", 1);
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetComputeRunningProcesses(device, &count, NULL), NVML_SUCCESS);
	assert_int_equal(count, 0);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo_v2(device, &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 10 * MIB);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	unsetenv("NEAP_SIM_HIDDEN");
	sim_end();
}

static void nvml_alone_is_no_process_and_agrees_with_cuda(void **state)
{
	char uuid[96], name[96], small[4], text[48];
	unsigned int count, minor;
	nvmlDevice_t device;
	nvmlPciInfo_t pci;
	nvmlMemory_t memory;
	nvmlUtilization_t utilization;
	struct sim_view view;
	CUuuid cuda_uuid;

	(void)state;
	sim_name_world("nvmlonly", "mem=256MiB,gpus=2");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetCount(&count), NVML_SUCCESS);
	assert_int_equal(count, 2);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(2, &device), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(1, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
	sim_read(&view);
	assert_false(view.exists);
	assert_int_equal(view.process_count, 0);
	assert_int_equal(memory.free, view.devices[1].total_bytes - view.devices[1].reserved_bytes);
	assert_int_equal(t.nvml.nvmlDeviceGetUUID(device, uuid, sizeof uuid), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetUUID(device, small, sizeof small), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(t.nvml.nvmlDeviceGetName(device, name, sizeof name), NVML_SUCCESS);
	assert_string_equal(name, "Simulated GPU 256 MiB");
	assert_int_equal(t.nvml.nvmlDeviceGetMinorNumber(device, &minor), NVML_SUCCESS);
	assert_int_equal(minor, 1);
	assert_int_equal(t.nvml.nvmlDeviceGetPciInfo(device, &pci), NVML_SUCCESS);
	assert_string_equal(pci.busId, "00000000:18:00.0");
	assert_int_equal(pci.bus, 0x18);
	assert_int_equal(t.nvml.nvmlDeviceGetUtilizationRates(device, &utilization), NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDeviceGetUuid(&cuda_uuid, 0));
	sim_uuid_format((unsigned char *)cuda_uuid.bytes, text);
	assert_string_equal(text, uuid); /* the same device, whatever its index */
	unsetenv("CUDA_VISIBLE_DEVICES");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(specs_say_what_to_simulate),
		cmocka_unit_test(bad_specs_are_pointed_at),
		cmocka_unit_test(a_bad_spec_fails_both_libraries_and_they_say_why),
		cmocka_unit_test(devices_come_in_another_order),
		cmocka_unit_test(visible_devices_are_chosen_as_the_driver_does),
		cmocka_unit_test(devices_describe_themselves),
		cmocka_unit_test(what_is_lacking_is_refused),
		cmocka_unit_test(errors_have_names),
		cmocka_unit_test(memory_sums_in_both_versions),
		cmocka_unit_test(processes_are_listed_with_their_bytes),
		cmocka_unit_test(a_hidden_process_uses_but_is_not_listed),
		cmocka_unit_test(nvml_alone_is_no_process_and_agrees_with_cuda),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
