/* Notes for the report of `neap run`: lines of NEAP_RUN_DIR/note.PID. A note that cannot be written is lost. */
#include "sim/driver/state.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void sim_note(const char *format, ...)
{
	const char *folder = getenv("NEAP_RUN_DIR");
	char path[4096];
	va_list arguments;
	int file;

	if (!folder || (size_t)snprintf(path, sizeof path, "%s/note.%d", folder, (int)getpid()) >= sizeof path)
		return;
	file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file < 0)
		return;
	va_start(arguments, format);
	vdprintf(file, format, arguments);
	va_end(arguments);
	dprintf(file, "\n");
	close(file);
}
