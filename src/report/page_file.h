/* report/page_file.h: opens the target of a page: a file, which is replaced whole or not at all, or something that
 * cannot be replaced (a pipe, a device, standard output), which is written directly. */
#ifndef NEAP_REPORT_PAGE_FILE_H
#define NEAP_REPORT_PAGE_FILE_H

#include "base/file.h"

struct neap_page_file {
	struct neap_file file;
	int fd; /* the caller writes to it */
	bool direct, opened;
};

/* "-" is standard output. Errors: NEAP_EINVAL for a folder, and for one of `inputs` (the files that the page is made
 * from, NULL last); those of opening. After a failure, there is nothing to abort. */
enum neap_status neap_page_file_begin(struct neap_page_file *file, const char *path, const char *const *inputs,
				      struct neap_error *err);
enum neap_status neap_page_file_commit(struct neap_page_file *file, struct neap_error *err);
/* Idempotent; also after commit, and for a zeroed struct. */
void neap_page_file_abort(struct neap_page_file *file);

#endif
