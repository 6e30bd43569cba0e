/* Records the most memory that this process took of each device, for `neap estimate` (NEAP_ESTIMATE=1) of programs
 * that do not allocate through PyTorch. NEAP_RUN_DIR/driver.PID has a line for each device that the process used:
 *
 *   ORDINAL MEMORY CONTEXTS     bytes without those of contexts, and the number of contexts: the most at one time
 *
 * The file is written at each new peak, so that it is there whatever ends the process. Modules that the program loads
 * itself (Triton's) go into another file, NEAP_RUN_DIR/code.PID, which the stand-in for the runtime writes too
 * (sim/runtime/code.c):
 *
 *   cubin BYTES                 of its code, constants and variables; 0: unknown, such as PTX */
#include "sim/driver/state.h"

#include "base/descriptor.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns -1 if there is no estimate, or the file cannot be opened. */
static int open_named(const char *name, int flags)
{
	const char *asked = getenv("NEAP_ESTIMATE"), *folder = getenv("NEAP_RUN_DIR");
	char path[4096];

	if (!asked || strcmp(asked, "1") != 0 || !folder ||
	    (size_t)snprintf(path, sizeof path, "%s/%s.%d", folder, name, (int)getpid()) >= sizeof path)
		return -1;
	return neap_fd_above_standard(open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600));
}

static struct {
	bool decided; /* it is known whether there is a file */
	int file;     /* -1: none */
	struct {
		uint64_t memory, contexts, memory_peak, contexts_peak;
	} devices[SIM_DEVICE_LIMIT];
} account;

static void write_file(void)
{
	char text[SIM_DEVICE_LIMIT * 64];
	size_t used = 0;

	for (uint32_t i = 0; i < SIM_DEVICE_LIMIT; i++)
		if (account.devices[i].contexts_peak || account.devices[i].memory_peak)
			used += (size_t)snprintf(text + used, sizeof text - used,
						 "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", i,
						 account.devices[i].memory_peak, account.devices[i].contexts_peak);
	if (pwrite(account.file, text, used, 0) < 0) { /* perhaps the disk is full: write no more */
		close(account.file);
		account.file = -1;
	}
}

void sim_account_charge(uint32_t device, enum sim_charge what, uint64_t bytes)
{
	uint64_t *now =
		what == SIM_CHARGE_CONTEXT ? &account.devices[device].contexts : &account.devices[device].memory;
	uint64_t *peak = what == SIM_CHARGE_CONTEXT ? &account.devices[device].contexts_peak
						    : &account.devices[device].memory_peak;

	if (!account.decided) {
		account.decided = true;
		account.file = open_named("driver", O_TRUNC);
	}
	*now += what == SIM_CHARGE_CONTEXT ? 1 : bytes;
	if (account.file < 0 || *now <= *peak)
		return;
	*peak = *now;
	write_file();
}

void sim_account_refund(uint32_t device, enum sim_charge what, uint64_t bytes)
{
	if (what == SIM_CHARGE_CONTEXT)
		account.devices[device].contexts--;
	else
		account.devices[device].memory -= bytes;
}

void sim_account_module(uint64_t bytes)
{
	int file = open_named("code", O_APPEND | O_NOFOLLOW);

	if (file < 0)
		return;
	dprintf(file, "cubin %" PRIu64 "\n", bytes);
	close(file);
}
