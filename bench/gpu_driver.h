/* bench/gpu_driver.h: what the parts of bench/gpu_driver share: the open device, times, and the report they write.
 *
 * The program forks for each part; the part opens the driver itself and writes one line of JSON. A part that fails
 * says so in its line, and the others run. One thread; nothing here is safe from several.
 */
#ifndef BENCH_GPU_DRIVER_H
#define BENCH_GPU_DRIVER_H

#include "device/driver.h"
#include "device/monitor.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MIB           (1ull << 20)
#define TEXT_CAPACITY 256

/* -- the report: one JSON object, written in order ------------------------------------------------------------- */

/* `key` is NULL inside a list. */
void report_begin(FILE *out, const char *part);
void report_end(FILE *out);
void report_object(FILE *out, const char *key);
void report_list(FILE *out, const char *key);
void report_close(FILE *out); /* the object or list that was opened last */
void report_number(FILE *out, const char *key, double value);
void report_count(FILE *out, const char *key, uint64_t value);
void report_signed(FILE *out, const char *key, int64_t value);
void report_hex(FILE *out, const char *key, uint64_t value);
void report_text(FILE *out, const char *key, const char *value);

/* -- times ------------------------------------------------------------------------------------------------------ */

#define TIMES_CAPACITY 4096

struct times {
	uint64_t ns[TIMES_CAPACITY];
	size_t count; /* how many are kept; later ones are dropped */
};

uint64_t now_ns(void);
void times_add(struct times *times, uint64_t began_ns);
/* {"median_us", "p99_us", "worst_us", "calls"} under `key`; nothing without a time. Sorts them. */
void times_report(struct times *times, FILE *out, const char *key);

/* -- the device ------------------------------------------------------------------------------------------------- */

struct bench {
	FILE *out;
	struct neap_driver *driver;
	struct neap_monitor *monitor; /* NULL: no NVML */
	const struct neap_cuda *cuda;
	CUdevice device;
	size_t index;               /* NVML's index of this device */
	char failed[TEXT_CAPACITY]; /* why the part stopped; "": it did not */
	bool dry;                   /* this is the simulator */
};

/* Opens the driver, and device 0 with its primary context current. False: `failed` says why. */
bool bench_open(struct bench *bench);
/* True on success; else notes the first failure, with the driver's words. */
bool ok(struct bench *bench, CUresult result, const char *what);
/* Free bytes by the driver; 0 on failure. */
uint64_t free_bytes(struct bench *bench);

/* -- the parts -------------------------------------------------------------------------------------------------- */

typedef void part_fn(struct bench *bench);

part_fn part_machine, part_start, part_processes; /* gpu_driver_machine.c */
part_fn part_small, part_pages, part_busy;        /* gpu_driver_calls.c */
part_fn part_places, part_drain, part_limits;     /* gpu_driver_memory.c */
part_fn part_code, part_code_lazy;                /* gpu_driver_code.c */

/* A module of PTX with a kernel that runs for the nanoseconds it is given; NULL on failure. */
CUfunction spinning_kernel(struct bench *bench);
bool spin(struct bench *bench, CUfunction kernel, CUstream stream, uint64_t ns);

#endif
