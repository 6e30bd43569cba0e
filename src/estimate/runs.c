/* estimate/runs.c: see runs.h. */
#include "estimate/runs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hostmem.h"
#include "base/spawn.h"
#include "base/units.h"
#include "estimate/trackers.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER       "other." /* the folder of another run, within the folder of the run that forked it */
#define FACTS_BYTES (1u << 20)
#define WORDS_FIXED 16
#define AT_ONCE     8 /* at most */
#define POLL_NS     (50 * NEAP_NS_PER_MS)
#define LEAST_BYTES (64ull << 20) /* that a run may write, however little memory is free */
#define GUESS_KIB   (4l << 20)    /* of host memory that a run takes, until one has shown it */
#define TIGHT_SHARE 8             /* of the host memory that was free at first: less is too little */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	(void)remove(path);
	return 0;
}

void neap_estimate_remove(const char *folder) { (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

void neap_estimate_job_prepare(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes,
			       const char *folder, const char *suffix, struct neap_estimate_job *ret_job)
{
	const struct sim_profile *profile = plan->gpus[plan->run_gpus[run]].profile;
	char world[64], architecture[16], name[64];
	*ret_job = (struct neap_estimate_job){0};
	neap_estimate_architecture(profile, architecture);
	snprintf(world, sizeof world, "estimate-%d-%zu%s", (int)getpid(), run, suffix);
	snprintf(name, sizeof name, "%s-%dmp%s", architecture, profile->multiprocessors, suffix);
	neap_estimate_spec(plan, run, memory_bytes, world, ret_job->spec, sizeof ret_job->spec);
	snprintf(ret_job->label, sizeof ret_job->label, "%s, %d multiprocessors", architecture,
		 profile->multiprocessors);
	(void)neap_path_join(ret_job->folder, sizeof ret_job->folder, folder, name);
}

/* The parameter, or the change that the job puts in its place. */
static char *changed(const struct neap_estimate_job *job, char *parameter)
{
	size_t length = strcspn(parameter, "=");
	for (size_t i = 0; job->changes[i]; i++)
		if (strcspn(job->changes[i], "=") == length && strncmp(job->changes[i], parameter, length) == 0)
			return (char *)(uintptr_t)job->changes[i];
	return parameter;
}

/* The argv of `neap run` for the job. The caller frees the array, not its strings. NULL: out of memory. */
static char **make_argv(const struct neap_estimate_command *command, struct neap_estimate_job *job)
{
	size_t parameters = 0, argv = 0, used = 0;
	while (command->parameters[parameters])
		parameters++;
	while (command->argv[argv])
		argv++;
	char **list = calloc(WORDS_FIXED + 2 * parameters + argv + 1, sizeof *list);
	if (!list)
		return NULL;
	static char *const fixed[] = {"neap", "run", "--quiet", "--no-history", "--log", "--grace", "300s", NULL};
	for (size_t i = 0; fixed[i]; i++)
		list[used++] = fixed[i];
	list[used++] = "--folder";
	list[used++] = job->folder;
	list[used++] = "--max-steps";
	list[used++] = command->steps ? (char *)(uintptr_t)command->steps : "steady";
	list[used++] = "--time-limit";
	list[used++] = (char *)(uintptr_t)command->time_limit;
	for (size_t i = 0; i < parameters; i++) {
		list[used++] = "--param";
		list[used++] = changed(job, command->parameters[i]);
	}
	list[used++] = "--";
	for (size_t i = 0; i < argv; i++)
		list[used++] = command->argv[i];
	return list;
}

/* How many others the job's run may fork: none with --keep-writes, since their writes are not kept. */
static size_t count_forks(const struct neap_estimate_command *command, const struct neap_estimate_job *job)
{
	return command->isolation->in_place || command->isolation->keep ? 0 : job->other_count;
}

/* Sets NEAP_ESTIMATE_SHARED for the job's run: how many seconds the run may take, and the other runs that it
 * forks. */
static void set_shared(const struct neap_estimate_command *command, const struct neap_estimate_job *job)
{
	struct neap_buffer text = {0};
	uint64_t limit_ns = 0;
	if (!count_forks(command, job) || neap_duration_parse(command->time_limit, &limit_ns, NULL))
		return;
	neap_buffer_format(&text, "%llu", limit_ns / NEAP_NS_PER_S / 10 * 9);
	for (size_t i = 0; i < job->other_count; i++)
		neap_buffer_format(&text, "\n" OTHER "%zu\t%s", i, job->others[i].spec);
	if (neap_buffer_status(&text, NULL) == NEAP_OK)
		setenv("NEAP_ESTIMATE_SHARED", neap_buffer_string(&text), 1);
	neap_buffer_fini(&text);
}

static bool copy_file(const char *from, const char *to, const char *name)
{
	struct neap_buffer bytes = {0};
	char source[NEAP_ESTIMATE_CAPACITY], target[NEAP_ESTIMATE_CAPACITY];
	bool copied = !neap_path_join(source, sizeof source, from, name) &&
		      !neap_path_join(target, sizeof target, to, name) &&
		      !neap_file_read(source, FACTS_BYTES, &bytes, NULL) &&
		      !neap_file_write(target, bytes.data, bytes.length, NULL);
	neap_buffer_fini(&bytes);
	return copied;
}

/* Whether a run ended and left findings. Without findings its process was stopped, or died. */
static bool has_findings(const char *folder)
{
	static const char prefix[] = "estimate.", ending[] = ".json";
	DIR *entries = opendir(folder);
	bool found = false;
	for (struct dirent *entry; entries && !found && (entry = readdir(entries));) {
		size_t length = strlen(entry->d_name);
		found = !strncmp(entry->d_name, prefix, strlen(prefix)) && length > strlen(prefix) + strlen(ending) &&
			!strcmp(entry->d_name + length - strlen(ending), ending);
	}
	if (entries)
		closedir(entries);
	return found;
}

void neap_estimate_job_take_others(struct neap_estimate_job *job)
{
	for (size_t i = 0; i < job->other_count; i++) {
		struct neap_estimate_job *other = &job->others[i];
		struct neap_view_facts facts;
		char name[32], made[NEAP_ESTIMATE_CAPACITY];
		snprintf(name, sizeof name, OTHER "%zu", i);
		struct stat info;
		if (neap_path_join(made, sizeof made, job->folder, name) || lstat(made, &info))
			continue;
		/* The program can write here, so a link may lead out of its view. */
		if (S_ISDIR(info.st_mode)) {
			neap_view_facts_read(made, &facts);
			other->over = facts.kind == NEAP_VIEW_MOUNTS && !facts.full && has_findings(made) &&
				      copy_file(job->folder, made, "result.json") && rename(made, other->folder) == 0;
		}
		if (!other->over)
			neap_estimate_remove(made);
	}
}

struct child {
	const struct neap_estimate_command *command;
	const struct neap_estimate_job *job;
};

/* In the child: sets the environment of `neap run`. */
static int prepare(void *context)
{
	const struct child *child = context;
	const struct neap_estimate_command *command = child->command;
	const struct neap_estimate_job *job = child->job;
	setenv("NEAP_DEVICE", "sim", 1);
	setenv("NEAP_SIM", job->spec, 1);
	setenv("NEAP_ESTIMATE", "1", 1);
	if (command->forwards)
		setenv("NEAP_ESTIMATE_FORWARDS", command->forwards, 1);
	if (command->ranks)
		setenv("NEAP_ESTIMATE_RANKS", command->ranks, 1);
	set_shared(command, job);
	setenv("TORCH_SYMBOLIZE_MODE", "dladdr", 0); /* C++ frames by name alone, which is fast */
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_FRACTION");
	unsetenv("NEAP_ALLOCATOR");       /* the estimate is of PyTorch's own */
	unsetenv("CUDA_VISIBLE_DEVICES"); /* names real devices */
	if (!command->isolation->in_place)
		neap_trackers_set_offline(job->folder);
	return 0;
}

static enum neap_status start_in_place(struct child *child, struct neap_estimate_job *job, char **argv,
				       struct neap_error *err)
{
	const struct neap_view_facts facts = {.kind = NEAP_VIEW_IN_PLACE};
	enum neap_status status = neap_view_facts_write(job->folder, &facts, err);
	if (status)
		return status;
	return neap_spawn(&(struct neap_spawn){.doing = "starting a run",
					       .program = "/proc/self/exe",
					       .argv = argv,
					       .run = prepare,
					       .context = child,
					       .fds = {NEAP_SPAWN_NULL},
					       .death_signal = SIGTERM},
			  &job->pid, err);
}

static uint64_t free_host_bytes(void)
{
	struct neap_host_memory memory;
	return neap_host_memory_read("", &memory, NULL) == NEAP_OK ? memory.available_bytes : 0;
}

/* How much a run may write: the runs side by side share half of the free host memory. Those that a run forks may
 * together write as much as itself (neap_view_serve). */
static uint64_t writes_limit(size_t side_by_side, size_t forks)
{
	uint64_t bytes = free_host_bytes() / 2 / side_by_side / (forks ? 2 : 1);
	return bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
}

static enum neap_status make_keep(const struct neap_estimate_command *command, const struct neap_estimate_job *job,
				  char text[NEAP_ESTIMATE_CAPACITY], struct neap_error *err)
{
	enum neap_status status =
		neap_path_join(text, NEAP_ESTIMATE_CAPACITY, command->isolation->keep, strrchr(job->folder, '/') + 1);
	return status ? neap_fail(err, status, "--keep-writes: the path is too long")
		      : neap_make_folder(text, 0777, err);
}

/* Called when the first run got no view of the files. Starts it under Landlock, or says why nothing can run. */
static enum neap_status start_otherwise(struct neap_keeper_options *options, struct neap_estimate_job *job,
					enum neap_status status, struct neap_error *err)
{
	struct neap_error first = *err, second = {0};
	if (options->keep || options->view.no_network)
		return neap_fail(err, status == NEAP_EPERM ? NEAP_ENOTSUP : status,
				 "nothing was run: %.150s (%s needs a view of the files)", first.message,
				 options->keep ? "--keep-writes" : "--no-network");
	options->kind = NEAP_VIEW_LANDLOCK;
	status = neap_keeper_start(options, &job->pid, &second);
	if (!status || status == NEAP_ECANCELED)
		return status;
	return neap_fail(err, NEAP_ENOTSUP,
			 "nothing was run: %.80s; %.60s. So the program would write your files for real: --in-place "
			 "allows that",
			 first.message, second.message);
}

/* The folder in which neap keeps what it compiles against the installed PyTorch (python/neap/_compiled.py). Without
 * it each run would compile again. False: there is no such folder. */
static bool make_cache(char path[NEAP_ESTIMATE_CAPACITY])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char text[NEAP_ESTIMATE_CAPACITY];
	bool given = cache && *cache;
	if (!given && (!home || !*home))
		return false;
	int length =
		snprintf(text, sizeof text, given ? "%s/neap/values" : "%s/.cache/neap/values", given ? cache : home);
	return length < (int)sizeof text && text[0] == '/' && !neap_make_folder(text, 0700, NULL) &&
	       realpath(text, path);
}

/* Starts the run in a view of the files, or under Landlock where the system allows no view. */
static enum neap_status start_isolated(struct child *child, struct neap_estimate_job *job, char **argv,
				       size_t side_by_side, struct neap_error *err)
{
	struct neap_estimate_isolation *isolation = child->command->isolation;
	size_t forks = count_forks(child->command, job);
	char kept[NEAP_ESTIMATE_CAPACITY], cache[NEAP_ESTIMATE_CAPACITY];
	struct neap_keeper_options options = {.kind = isolation->kind ? isolation->kind : NEAP_VIEW_MOUNTS,
					      .view = {.folder = job->folder,
						       .cache = make_cache(cache) ? cache : NULL,
						       .limit_bytes = writes_limit(side_by_side, forks),
						       .no_network = isolation->no_network,
						       .argv = child->command->argv,
						       .forks = forks},
					      .temporary = isolation->temporary,
					      .keep = isolation->keep ? kept : NULL,
					      .argv = argv,
					      .prepare = prepare,
					      .context = child};
	enum neap_status status = isolation->keep ? make_keep(child->command, job, kept, err) : NEAP_OK;
	if (!status)
		status = neap_keeper_start(&options, &job->pid, err);
	if (status && status != NEAP_ECANCELED && status != NEAP_ESTATE && status != NEAP_ENOMEM && !isolation->kind)
		status = start_otherwise(&options, job, status, err);
	if (!status)
		isolation->kind = options.kind;
	return status;
}

static enum neap_status start(const struct neap_estimate_command *command, struct neap_estimate_job *job,
			      size_t side_by_side, struct neap_error *err)
{
	struct child child = {command, job};
	enum neap_status status = neap_make_folder(job->folder, 0700, err);
	char **argv = status == NEAP_OK ? make_argv(command, job) : NULL;
	if (status)
		return status;
	if (!argv)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	status = command->isolation->in_place ? start_in_place(&child, job, argv, err)
					      : start_isolated(&child, job, argv, side_by_side, err);
	free(argv);
	return status;
}

/* How many runs may go side by side. Each needs a processor. Together they take at most three quarters of the free
 * host memory, and write at most half of it (writes_limit). */
static size_t room_for(long peak_kib, long written_kib)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN), free_kib = (long)(free_host_bytes() >> 10);
	long most = processors < 1 ? 1 : processors > AT_ONCE ? AT_ONCE : processors;
	long memory = free_kib / 4 * 3 / (peak_kib + written_kib > 0 ? peak_kib + written_kib : 1);
	if (written_kib && free_kib / 2 / written_kib < memory)
		memory = free_kib / 2 / written_kib;
	return (size_t)(memory < 1 ? 1 : memory < most ? memory : most);
}

/* How many runs may go side by side, by the needs of those that have ended. 0: none has ended. */
static size_t room_known(const struct neap_estimate_job *jobs, size_t count)
{
	size_t room = 0;
	for (size_t i = 0; i < count; i++) {
		struct neap_view_facts facts;
		if (!jobs[i].over)
			continue;
		neap_view_facts_read(jobs[i].folder, &facts);
		room = room_for(jobs[i].peak_kib, (long)(facts.bytes >> 10));
	}
	return room;
}

static bool go_on(const struct neap_estimate_watch *watch, const char *what, uint64_t elapsed_ns)
{
	return watch->go_on(watch->context, what, elapsed_ns);
}

/* How many optimizer updates the process with the most has made: RUN/steps.PID has a byte for each. */
static uint64_t count_updates(const char *folder)
{
	DIR *entries = opendir(folder);
	uint64_t most = 0;
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		struct stat about;
		if (!strncmp(entry->d_name, "steps.", 6) && !fstatat(dirfd(entries), entry->d_name, &about, 0) &&
		    (uint64_t)about.st_size > most)
			most = (uint64_t)about.st_size;
	}
	if (entries)
		closedir(entries);
	return most;
}

static void show_jobs(const struct neap_estimate_watch *watch, const struct neap_estimate_job *jobs, size_t count,
		      uint64_t elapsed_ns)
{
	size_t over = 0, first = count;
	char text[160], updates[48] = "";
	for (size_t i = 0; i < count; i++) {
		over += jobs[i].over;
		if (jobs[i].pid && first == count)
			first = i;
	}
	if (first == count)
		return;
	uint64_t done = count_updates(jobs[first].folder);
	if (done)
		snprintf(updates, sizeof updates, ", %" PRIu64 " update%s", done, done == 1 ? "" : "s");
	snprintf(text, sizeof text, "run %zu of %zu: %s%s", over + 1, count, jobs[first].label, updates);
	go_on(watch, text, elapsed_ns);
}

/* Reaps the runs that have ended. Returns how many still run. */
static size_t reap(struct neap_estimate_job *jobs, size_t count)
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
		jobs[i].over = !jobs[i].again;
		jobs[i].peak_kib = usage.ru_maxrss;
		if (jobs[i].again)
			neap_estimate_remove(jobs[i].folder);
		jobs[i].again = false;
	}
	return running;
}

static void stop(struct neap_estimate_job *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (jobs[i].pid)
			kill(jobs[i].pid, SIGTERM);
}

/* Called when the host has too little memory for all runs. Ends the last one, which starts again later; waits if one
 * is ending already. */
static void put_off(struct neap_estimate_job *jobs, size_t count)
{
	size_t last = count;
	for (size_t i = 0; i < count; i++) {
		if (jobs[i].again)
			return;
		if (jobs[i].pid)
			last = i;
	}
	jobs[last].again = true;
	kill(jobs[last].pid, SIGTERM);
}

/* The next job that has not begun; `count`: none. */
static size_t next_job(const struct neap_estimate_job *jobs, size_t count)
{
	size_t i = 0;
	while (i < count && (jobs[i].over || jobs[i].pid))
		i++;
	return i;
}

enum neap_status neap_estimate_jobs_run(const struct neap_estimate_command *command, struct neap_estimate_job *jobs,
					size_t count, size_t at_once, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	const struct neap_estimate_watch *watch = &command->watch;
	const struct neap_clock *clock = neap_clock_system();
	const uint64_t began_ns = neap_clock_now(clock);
	const uint64_t tight_bytes = at_once ? 0 : free_host_bytes() / TIGHT_SHARE;
	size_t running = 0, capacity = at_once ? at_once : room_for(GUESS_KIB, 0), next;
	bool stopped = false;
	while (true) {
		while (go_on(watch, NULL, 0) && !status && running < capacity &&
		       (next = next_job(jobs, count)) < count) {
			status = start(command, &jobs[next], capacity, err);
			running += status == NEAP_OK;
		}
		if ((!go_on(watch, NULL, 0) || status) && !stopped) {
			stop(jobs, count);
			stopped = true;
		}
		show_jobs(watch, jobs, count, neap_clock_now(clock) - began_ns);
		size_t left = reap(jobs, count);
		if (left > 1 && free_host_bytes() < tight_bytes) {
			put_off(jobs, count);
			capacity = 1;
		} else if (!at_once && left < running && room_known(jobs, count)) {
			capacity = room_known(jobs, count);
		}
		running = left;
		if (!running && (stopped || next_job(jobs, count) == count))
			break;
		if (running)
			neap_clock_sleep(clock, POLL_NS);
	}
	go_on(watch, "", 0);
	if (!status && !go_on(watch, NULL, 0))
		return neap_fail(err, NEAP_ECANCELED, "stopped");
	return status;
}
