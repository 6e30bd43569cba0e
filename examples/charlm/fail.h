/* charlm/fail.h: fills an error and returns its status. */
#ifndef CHARLM_FAIL_H
#define CHARLM_FAIL_H

#include "neap/status.h"

NEAP_PRINTF(3, 4)
enum neap_status fail(struct neap_error *err, enum neap_status status, const char *format, ...);

#endif
