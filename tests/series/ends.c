/* ends.c: an experiment that announces when it will end, and ends then.
 *
 *   ends NAME MS     appends a line to ran/NAME; the first time it also writes "PID TIME" to at/NAME, ends MS later
 *                    (TIME is CLOCK_MONOTONIC's, in ns), and makes done/NAME as its last act; later it ends at once
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv)
{
	char ran[256], at[256], part[256], done[256], line[64];
	struct stat info;
	if (argc != 3)
		return 64;
	snprintf(ran, sizeof ran, "ran/%s", argv[1]);
	snprintf(at, sizeof at, "at/%s", argv[1]);
	snprintf(part, sizeof part, "at/.%s", argv[1]);
	snprintf(done, sizeof done, "done/%s", argv[1]);
	int fd = open(ran, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || write(fd, "x\n", 2) != 2 || fstat(fd, &info))
		return 70;
	if (info.st_size > 2)
		return 0;
	int64_t end = now_ns() + atoll(argv[2]) * 1000000;
	int length = snprintf(line, sizeof line, "%d %lld\n", (int)getpid(), (long long)end);
	fd = open(part, O_WRONLY | O_CREAT, 0600);
	if (fd < 0 || write(fd, line, (size_t)length) != length || rename(part, at))
		return 70;
	struct timespec until = {end / 1000000000, end % 1000000000};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	if (open(done, O_WRONLY | O_CREAT, 0600) < 0)
		_exit(70);
	_exit(0);
}
