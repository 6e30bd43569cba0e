/* cli/estimate_start.c: see estimate_start.h. */
#include "cli/estimate_start.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_FIXED 16
#define AT_ONCE     8 /* at most */
#define POLL_NS     (50 * NEAP_NS_PER_MS)
#define CLEAR       "\r\033[K"

static volatile sig_atomic_t interrupted_by;
static void on_signal(int number) { interrupted_by = number; }
int estimate_interrupted(void) { return interrupted_by; }

void estimate_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	(void)remove(path);
	return 0;
}

void estimate_remove(const char *folder) { (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

void estimate_job_prepare(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes,
			  const char *folder, const char *suffix, struct estimate_job *ret_job)
{
	const struct sim_profile *profile = plan->gpus[plan->run_gpus[run]].profile;
	char world[64], architecture[16], name[64];
	*ret_job = (struct estimate_job){0};
	neap_estimate_architecture(profile, architecture);
	snprintf(world, sizeof world, "estimate-%d-%zu%s", (int)getpid(), run, suffix);
	snprintf(name, sizeof name, "%s-%dmp%s", architecture, profile->multiprocessors, suffix);
	neap_estimate_spec(plan, run, memory_bytes, world, ret_job->spec, sizeof ret_job->spec);
	snprintf(ret_job->label, sizeof ret_job->label, "%s, %d multiprocessors", architecture,
		 profile->multiprocessors);
	(void)neap_path_join(ret_job->folder, sizeof ret_job->folder, folder, name);
}

static bool same_name(const char *first, const char *second)
{
	size_t length = strcspn(first, "=");
	return strcspn(second, "=") == length && strncmp(first, second, length) == 0;
}

/* `neap run` of it. free() the array, not its strings. NULL: out of memory. */
static char **make_words(const struct estimate_command *command, struct estimate_job *job)
{
	size_t parameters = 0, words = 0, used = 0;
	while (command->parameters[parameters])
		parameters++;
	while (command->words[words])
		words++;
	char **list = calloc(WORDS_FIXED + 2 * parameters + words + 1, sizeof *list);
	if (!list)
		return NULL;
	static char *const fixed[] = {"neap", "run", "--quiet", "--no-history", "--log", "--grace", "300s", NULL};
	for (size_t i = 0; fixed[i]; i++)
		list[used++] = fixed[i];
	list[used++] = "--folder";
	list[used++] = job->folder;
	list[used++] = "--max-steps";
	list[used++] = (char *)(uintptr_t)command->steps;
	list[used++] = "--time-limit";
	list[used++] = (char *)(uintptr_t)command->time_limit;
	for (size_t i = 0; i < parameters; i++) {
		bool other = job->parameter && same_name(job->parameter, command->parameters[i]);
		list[used++] = "--param";
		list[used++] = other ? (char *)(uintptr_t)job->parameter : command->parameters[i];
	}
	list[used++] = "--";
	for (size_t i = 0; i < words; i++)
		list[used++] = command->words[i];
	return list;
}

/* In the child: never returns. */
static void become_run(const struct estimate_command *command, struct estimate_job *job, char **words, pid_t parent)
{
	struct sigaction usual = {.sa_handler = SIG_DFL};
	sigaction(SIGINT, &usual, NULL);
	sigaction(SIGTERM, &usual, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(70);
	int null_fd = open("/dev/null", O_RDWR);
	if (null_fd >= 0)
		dup2(null_fd, STDIN_FILENO);
	setenv("NEAP_DEVICE", "sim", 1);
	setenv("NEAP_SIM", job->spec, 1);
	setenv("NEAP_ESTIMATE", "1", 1);
	if (command->forwards)
		setenv("NEAP_ESTIMATE_FORWARDS", command->forwards, 1);
	if (command->ranks)
		setenv("NEAP_ESTIMATE_RANKS", command->ranks, 1);
	setenv("TORCH_SYMBOLIZE_MODE", "dladdr", 0); /* C++ frames by name alone, which is fast */
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_FRACTION");
	unsetenv("NEAP_ALLOCATOR");       /* the estimate is of PyTorch's own */
	unsetenv("CUDA_VISIBLE_DEVICES"); /* names real devices */
	execv("/proc/self/exe", words);
	_exit(70);
}

static enum neap_status start(const struct estimate_command *command, struct estimate_job *job,
			      struct neap_error *err)
{
	enum neap_status status = neap_make_folder(job->folder, 0700, err);
	char **words = status == NEAP_OK ? make_words(command, job) : NULL;
	pid_t parent = getpid();
	if (status)
		return status;
	if (!words)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	job->pid = fork();
	if (job->pid == 0)
		become_run(command, job, words, parent);
	free(words);
	if (job->pid > 0)
		return NEAP_OK;
	job->pid = 0;
	return neap_fail_errno(err, errno, "starting a run");
}

/* Side by side: a processor each, and three quarters of the free host memory together. */
static size_t room_for(long peak_kib)
{
	char line[128];
	long processors = sysconf(_SC_NPROCESSORS_ONLN), free_kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "MemAvailable: %ld", &free_kib) == 1)
			break;
	if (file)
		fclose(file);
	long most = processors < 1 ? 1 : processors > AT_ONCE ? AT_ONCE : processors;
	long memory = free_kib / 4 * 3 / (peak_kib > 0 ? peak_kib : 1);
	return (size_t)(memory < 1 ? 1 : memory < most ? memory : most);
}

/* Draws what runs; nothing where stderr is not a terminal. */
static void draw(const struct estimate_job *jobs, size_t count, uint64_t began_ns)
{
	size_t over = 0, first = count;
	const char *kind = getenv("TERM");
	if (!isatty(STDERR_FILENO) || !kind || !strcmp(kind, "dumb"))
		return;
	for (size_t i = 0; i < count; i++) {
		over += jobs[i].over;
		if (jobs[i].pid && first == count)
			first = i;
	}
	if (first < count)
		fprintf(stderr, CLEAR "run %zu of %zu: %s, %llu s", over + 1, count, jobs[first].label,
			(unsigned long long)((neap_clock_now(neap_clock_system()) - began_ns) / NEAP_NS_PER_S));
	else
		fputs(CLEAR, stderr);
	fflush(stderr);
}

/* Reaps those that have ended. Returns how many still run. */
static size_t reap(struct estimate_job *jobs, size_t count)
{
	size_t running = 0;
	for (size_t i = 0; i < count; i++) {
		struct rusage usage = {0};
		int status;
		if (!jobs[i].pid)
			continue;
		if (wait4(jobs[i].pid, &status, WNOHANG, &usage) == 0) {
			running++;
			continue;
		}
		jobs[i].pid = 0;
		jobs[i].over = true;
		jobs[i].peak_kib = usage.ru_maxrss;
	}
	return running;
}

static void stop(struct estimate_job *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (jobs[i].pid)
			kill(jobs[i].pid, SIGTERM);
}

/* The next one that has not begun; `count`: none. */
static size_t next_job(const struct estimate_job *jobs, size_t count)
{
	size_t i = 0;
	while (i < count && (jobs[i].over || jobs[i].pid))
		i++;
	return i;
}

enum neap_status estimate_jobs_run(const struct estimate_command *command, struct estimate_job *jobs, size_t count,
				   size_t at_once, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	uint64_t began_ns = neap_clock_now(neap_clock_system());
	size_t running = 0, room = at_once ? at_once : 1, next;
	bool stopped = false;
	while (true) {
		while (!interrupted_by && !status && running < room && (next = next_job(jobs, count)) < count) {
			status = start(command, &jobs[next], err);
			running += status == NEAP_OK;
		}
		if ((interrupted_by || status) && !stopped) {
			stop(jobs, count);
			stopped = true;
		}
		draw(jobs, count, began_ns);
		size_t left = reap(jobs, count);
		if (!at_once && left < running) /* one has shown what it takes */
			for (size_t i = 0; i < count; i++)
				if (jobs[i].over)
					room = room_for(jobs[i].peak_kib);
		running = left;
		if (!running && (stopped || next_job(jobs, count) == count))
			break;
		if (running)
			neap_clock_sleep(neap_clock_system(), POLL_NS);
	}
	draw(jobs, 0, began_ns);
	if (!status && interrupted_by)
		return neap_fail(err, NEAP_ECANCELED, "stopped");
	return status;
}
