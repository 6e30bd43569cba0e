/* run/observe.h: samples how a run uses the devices. The supervisor reads the statistics pages of the run's attached
 * processes, and the driver's figures.
 *
 * The supervisor watches one device: the requested one, else the first visible one, else the one that the first
 * attached process uses. It keeps readings of all devices from before the start, to compare with them after the end.
 *
 * A monitor may be NULL (no driver): pages are still read. One thread.
 */
#ifndef NEAP_RUN_OBSERVE_H
#define NEAP_RUN_OBSERVE_H

#include "base/buffer.h"
#include "proto/page.h"
#include "run/drain.h"
#include "store/result.h"
#include "trace/record.h"

#define NEAP_CURVE_POINTS 2000

/* A memory curve of bounded size. When it is full, neighbours are merged in pairs (the higher one stays), and from
 * then on each point stands for twice as many samples. A zeroed struct is empty. */
struct neap_samples {
	struct neap_result_sample items[NEAP_CURVE_POINTS];
	size_t count;
	size_t each;   /* samples a point stands for; 0 counts as 1 */
	size_t inside; /* samples in the last point */
};
void neap_samples_add(struct neap_samples *samples, const struct neap_result_sample *sample);

/* A process of the run that is attached, or that the driver listed. */
struct neap_observed {
	pid_t pid;
	uint64_t start_ticks;
	/* On the watched device, as counted by the process's allocator */
	uint64_t peak_allocated_bytes, peak_reserved_bytes;
	uint64_t ooms; /* on all devices of the process */
	char record_path[512];
	uint64_t uses;   /* a bit per device, by NVML's index: it has or had an allocator there */
	uint64_t strays; /* a bit per device: it holds only a context there */
	/* The largest context on a device that it uses; the last one on a device that it only holds */
	uint64_t context_bytes, stray_bytes;
	bool ooms_rose;       /* the last neap_observe_take counted more OOMs than before */
	uint64_t cards_shown; /* for the supervisor: how many OOMs of its recording it has shown */
};

#define NEAP_OBSERVED_PROCESSES 256
#define NEAP_OBSERVED_OUTSIDERS 4

struct neap_observe {
	struct neap_monitor *monitor; /* borrowed; NULL: none */
	char runtime[4096];           /* folder of the pages; "" none */
	char runtime_note[320];       /* a warning about it; "" none */
	char run_id[64];
	pid_t supervisor;             /* processes of the run descend from it */
	bool pinned;                  /* the user named the device: do not switch to the attached process's one */
	size_t device_count, watched; /* watched == device_count: none */
	struct neap_reading *before;  /* one per device; `total_bytes` 0 where it could not be read */
	bool *touched;                /* devices the run was seen on */
	struct neap_reading now;      /* the watched device's last reading */
	uint64_t started_ns;
	struct neap_samples samples;
	struct neap_observed attached[NEAP_OBSERVED_PROCESSES];
	size_t attached_count;
	pid_t pids[NEAP_OBSERVED_PROCESSES]; /* the processes that the driver listed or that were attached */
	size_t pid_count;
	/* The first few processes that the driver listed before they were attached, and why they are not attached
	 * (run/outsider.h). */
	struct {
		pid_t pid;
		char text[320];
	} outsiders[NEAP_OBSERVED_OUTSIDERS];
	size_t outsider_count;
	uint64_t peak_allocated_bytes, peak_reserved_bytes; /* sums over processes, as sampled */
	/* The run's bytes on the watched device, in the last sample; or NEAP_BYTES_UNKNOWN */
	uint64_t run_bytes;
	uint64_t peak_device_bytes;  /* the driver's figure for the run; 0 unknown */
	uint64_t highest_used_bytes; /* of the device, others included */
	size_t turn;                 /* the index of the device that was read last, other than the watched one */
};

/* Chooses the device. `device`: an index or a UUID (or its beginning); NULL: the first of CUDA_VISIBLE_DEVICES, as
 * `visible` says (NULL: not set). Errors: NEAP_ENODEVICE, NEAP_EINVAL, NEAP_ENOMEM. */
enum neap_status neap_observe_init(struct neap_observe *observe, struct neap_monitor *monitor, const char *device,
				   const char *visible, const char *run_id, struct neap_error *err);
void neap_observe_fini(struct neap_observe *observe);

/* Reads the watched device into `now`. Errors: NEAP_ENODEVICE when none is watched; the driver's. */
enum neap_status neap_observe_read(struct neap_observe *observe, struct neap_error *err);

/* Right before a start: keeps the readings of all devices and resets the observations. */
void neap_observe_start(struct neap_observe *observe, uint64_t now_ns);

/* Takes one sample. Values that cannot be read stay unknown. */
void neap_observe_take(struct neap_observe *observe, uint64_t now_ns);

/* Call after the command has ended: adds the facts of a process's recording at `path`. The process counts as attached
 * even if no sample saw it. */
void neap_observe_recorded(struct neap_observe *observe, const struct neap_record *record, const char *path);
/* Whether a sample saw the process while it used a device. */
bool neap_observe_met(const struct neap_observe *observe, pid_t pid);

/* Bytes the run still holds on the watched device and on every device it was seen on; 0: drained, or unknown (no
 * monitor). */
uint64_t neap_observe_left(struct neap_observe *observe);

/* Each peak is the highest of: the peaks that the attached processes counted (exact, for one process alone), and the
 * sum over processes in a sample. */
void neap_observe_peaks(const struct neap_observe *observe, uint64_t *ret_allocated_bytes,
			uint64_t *ret_reserved_bytes);

/* The run's peak on the watched device: the higher of the driver's highest figure and `peak_reserved_bytes` plus a
 * context (no sample may have seen the peak). 0 unknown: the run was too short to be seen. */
uint64_t neap_observe_peak_device(const struct neap_observe *observe, uint64_t peak_reserved_bytes);

/* Names the processes of the run that held a context on a device they did not use, into `out`; nothing when none did.
 */
void neap_observe_strays(const struct neap_observe *observe, struct neap_buffer *out);

/* Names processes of the run that used a device and were never attached, with the reason, into `out`; nothing when
 * there was none. */
void neap_observe_outsiders(const struct neap_observe *observe, struct neap_buffer *out);

/* False: no sign that the run used a device. */
bool neap_observe_used(const struct neap_observe *observe);

#endif
