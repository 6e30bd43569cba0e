/* estimate/view_landlock.h: writes that fail, where a view of the files is not allowed (view.h).
 *
 * Landlock refuses to write, make, remove, rename and cut files outside of what is named here with EACCES; what it
 * does not know (modes, owners, times, attributes; before its third version: cutting by path) a filter of system
 * calls refuses with EPERM. Still for real: the run's folder, /dev/shm (the simulator's memory, DataLoader's
 * workers), and devices such as /dev/null and the terminal. TMPDIR and the runtime folders are set to a folder in
 * the run's. */
#ifndef NEAP_ESTIMATE_VIEW_LANDLOCK_H
#define NEAP_ESTIMATE_VIEW_LANDLOCK_H

#include "neap/status.h"

/* Binds this process and its children, for good. Changes the environment. Errors: NEAP_ENOTSUP: this system has no
 * Landlock, or no filter; others: then the process must end. */
enum neap_status neap_view_restrict(const char *folder, struct neap_error *err);

#endif
