/* base/process.c: /proc, read with care: a process may end between any two reads, its name may hold any byte (so the
 * fields of stat are counted from the last parenthesis), and its files may not be ours to open.
 */
#include "base/process.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNEL_THREAD     0x00200000u /* of the flags in /proc/PID/stat */
#define EXEC_TRIES        500         /* of 1 ms */
#define EXEC_SETTLED      5
#define ENVIRONMENT_CHUNK 4096

/* Reads up to room - 1 bytes of /proc/PID/NAME and terminates them. Returns the length, or -1 with errno. These files
 * give all that they have at once, so a length below room - 1 is the whole file. */
static ssize_t read_proc(pid_t pid, const char *name, char *text, size_t capacity)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t length;
	do
		length = read(fd, text, capacity - 1);
	while (length < 0 && errno == EINTR);
	int cause = errno;
	close(fd);
	errno = cause;
	if (length >= 0)
		text[length] = '\0';
	return length;
}

/* The fields of /proc/PID/stat that neap reads, see proc(5). */
enum { STATE = 3, PARENT, GROUP, SESSION, FLAGS = 9, USER_TIME = 14, SYSTEM_TIME, START_TIME = 22, RSS = 24, FIELDS };

/* Reads the numbers of fields PARENT to RSS. By hand: a search reads every process, and sscanf takes ten times as
 * long. */
static bool read_numbers(const char *at, int64_t numbers[FIELDS])
{
	for (int field = PARENT; field <= RSS; field++) {
		uint64_t number = 0;
		if (*at++ != ' ')
			return false;
		bool negative = *at == '-';
		at += negative;
		if (*at < '0' || *at > '9')
			return false;
		for (; *at >= '0' && *at <= '9'; at++)
			number = 10 * number + (uint64_t)(*at - '0');
		numbers[field] = (int64_t)(negative ? 0 - number : number);
	}
	return true;
}

static bool parse_stat(const char *text, struct neap_process *process)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	int64_t numbers[FIELDS];
	uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK);

	if (!open || !close || close < open || close[1] != ' ' || !close[2] || !read_numbers(close + 3, numbers))
		return false;
	process->state = close[2];
	process->parent = (pid_t)numbers[PARENT];
	process->group = (pid_t)numbers[GROUP];
	process->session = (pid_t)numbers[SESSION];
	process->kernel = numbers[FLAGS] & KERNEL_THREAD;
	process->start_ticks = (uint64_t)numbers[START_TIME];
	process->cpu_ns =
		hertz ? ((uint64_t)numbers[USER_TIME] + (uint64_t)numbers[SYSTEM_TIME]) * (NEAP_NS_PER_S / hertz) : 0;
	process->rss_bytes = (uint64_t)numbers[RSS] * (uint64_t)sysconf(_SC_PAGESIZE);

	size_t length = (size_t)(close - open - 1);
	if (length >= sizeof process->command)
		length = sizeof process->command - 1;
	memcpy(process->command, open + 1, length);
	process->command[length] = '\0';
	return true;
}

/* Sets the command to the start of the command line, if there is one: for "python" it then shows the script. Drops
 * the program's folder, as a long path would fill the field. Control characters become '?'. */
static void take_command(const char *line, size_t length, struct neap_process *process)
{
	if (!length)
		return;
	const char *end = line + strcspn(line, " "), *slash = memrchr(line, '/', (size_t)(end - line));
	const char *start = slash && slash + 1 < end ? slash + 1 : line;
	size_t rest = (size_t)(line + length - start);
	size_t shown = rest < sizeof process->command ? rest : sizeof process->command - 1;

	for (size_t i = 0; i < shown; i++)
		process->command[i] = start[i] ? start[i] : ' ';
	process->command[shown] = '\0';
	neap_printable(process->command, sizeof process->command, process->command);
}

/* Reads the command line into `line`, without the NULs at its end. */
static size_t read_line(pid_t pid, char *line, size_t capacity)
{
	ssize_t length = read_proc(pid, "cmdline", line, capacity);

	while (length > 0 && line[length - 1] == '\0')
		length--;
	return length > 0 ? (size_t)length : 0;
}

enum neap_status neap_process_read(pid_t pid, struct neap_process *ret_process, struct neap_error *err)
{
	char line[4096];
	size_t length;

	return neap_process_read_line(pid, ret_process, line, sizeof line, &length, err);
}

enum neap_status neap_process_read_stat(pid_t pid, struct neap_process *ret_process, struct neap_error *err)
{
	struct neap_process process = {.pid = pid};
	struct stat info;
	char text[2048], path[64];

	if (pid <= 0)
		return neap_fail(err, NEAP_ENOENT, "there is no process %d", (int)pid);
	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	bool read = read_proc(pid, "stat", text, sizeof text) >= 0;
	if (read && !parse_stat(text, &process))
		return neap_fail(err, NEAP_EIO, "/proc/%d/stat is not as expected", (int)pid);
	/* The folder's owner is the process's user; its files may be root's. A thread of the kernel is root's, as the
	 * zeroed `process` says. */
	if (read && !process.kernel) {
		read = stat(path, &info) >= 0;
		process.uid = info.st_uid;
	}
	if (!read && (errno == ENOENT || errno == ESRCH))
		return neap_fail(err, NEAP_ENOENT, "no process %d (it may have ended)", (int)pid);
	if (!read)
		return neap_fail_errno(err, errno, "reading /proc/%d/stat", (int)pid);
	neap_printable(process.command, sizeof process.command, process.command);
	*ret_process = process;
	return NEAP_OK;
}

enum neap_status neap_process_read_line(pid_t pid, struct neap_process *ret_process, char *ret_line, size_t capacity,
					size_t *ret_length, struct neap_error *err)
{
	struct neap_process process;
	enum neap_status status = neap_process_read_stat(pid, &process, err);

	if (status)
		return status;
	*ret_length = process.kernel ? 0 : read_line(pid, ret_line, capacity);
	take_command(ret_line, *ret_length, &process);
	*ret_process = process;
	return NEAP_OK;
}

int neap_process_open(pid_t pid, uint64_t start_ticks)
{
	int fd = neap_pidfd_open(pid);
	/* Open first, then check: a process alive now is the one that the descriptor refers to. */
	if (fd >= 0 && !neap_process_alive(pid, start_ticks)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool neap_process_alive(pid_t pid, uint64_t start_ticks)
{
	struct neap_process process = {.pid = pid};
	char text[2048];

	if (pid <= 0)
		return false;
	if (read_proc(pid, "stat", text, sizeof text) < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM; /* not known to be dead */
	return parse_stat(text, &process) && process.start_ticks == start_ticks && process.state != 'Z' &&
	       process.state != 'X';
}

enum neap_status neap_process_each(bool (*visit)(void *context, const struct neap_process *process), void *context,
				   struct neap_error *err)
{
	DIR *folder = opendir("/proc");
	struct neap_process process;
	struct dirent *entry;
	char *end;

	if (!folder)
		return neap_fail(err, NEAP_EIO, "opening /proc: %s", strerror(errno));
	while ((entry = readdir(folder))) {
		long pid = strtol(entry->d_name, &end, 10);
		if (*end || pid <= 0 || neap_process_read_stat((pid_t)pid, &process, NULL) != NEAP_OK)
			continue;
		if (!visit(context, &process))
			break;
	}
	closedir(folder);
	return NEAP_OK;
}

/* False for a kernel thread and for a process that has ended. */
static bool runs_a_program(pid_t pid)
{
	struct neap_process process;
	char text[2048];

	return read_proc(pid, "stat", text, sizeof text) > 0 && parse_stat(text, &process) && process.state != 'Z' &&
	       process.state != 'X' && !process.kernel;
}

static enum neap_status read_environment_once(pid_t pid, struct neap_buffer *buffer)
{
	char path[64], chunk[ENVIRONMENT_CHUNK];
	ssize_t n;

	neap_buffer_clear(buffer);
	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? NEAP_EPERM : NEAP_ENOENT;
	while ((n = read(fd, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			neap_buffer_append(buffer, chunk, (size_t)n);
	int cause = n < 0 ? errno : 0;
	close(fd);
	if (cause)
		return cause == EACCES || cause == EPERM ? NEAP_EPERM : NEAP_ENOENT;
	return neap_buffer_status(buffer, NULL);
}

/* During an exec a process has neither an environment nor a command line for a moment (a long one on a loaded
 * machine), and a read of the old environment ends early. A search for the processes of a run must not miss it, so
 * this function waits. */
static enum neap_status read_environment(pid_t pid, struct neap_buffer *buffer)
{
	char byte[2];

	for (int tries = 0, settled = 0;; tries++) {
		enum neap_status status = read_environment_once(pid, buffer);
		if (status || buffer->length % ENVIRONMENT_CHUNK || tries == EXEC_TRIES)
			return status;
		/* The command line appears a moment before the environment. */
		bool begun = read_proc(pid, "cmdline", byte, sizeof byte) > 0;
		settled = begun ? settled + 1 : 0;
		if (settled == EXEC_SETTLED) /* the environment is empty, or fills its chunks exactly */
			return NEAP_OK;
		if (!begun && !runs_a_program(pid))
			return NEAP_OK;
		neap_clock_sleep(neap_clock_system(), NEAP_NS_PER_MS);
	}
}

enum neap_status neap_process_environment(pid_t pid, const char *name, char *text, size_t capacity)
{
	struct neap_buffer buffer = {0};
	size_t name_length = strlen(name);
	enum neap_status status = read_environment(pid, &buffer);

	if (!status) {
		const char *at = neap_buffer_string(&buffer), *end = at + buffer.length;
		status = NEAP_ENOENT;
		for (; at < end; at += strlen(at) + 1) {
			if (strncmp(at, name, name_length) != 0 || at[name_length] != '=')
				continue;
			const char *value = at + name_length + 1;
			status = strlen(value) < capacity ? NEAP_OK : NEAP_EINVAL;
			if (!status)
				strcpy(text, value);
			break;
		}
	}
	neap_buffer_fini(&buffer);
	return status;
}
