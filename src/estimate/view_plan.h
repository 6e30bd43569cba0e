/* estimate/view_plan.h: which mount becomes what in the view of a simulated run. Pure.
 *
 *   overlay     a file system with files of the user: what is written goes to memory
 *   read only   one that no overlay can stand on, or whose only business is its devices
 *   as it is    the kernel's own (/proc, /sys), and what is read-only already
 */
#ifndef NEAP_ESTIMATE_VIEW_PLAN_H
#define NEAP_ESTIMATE_VIEW_PLAN_H

#include "estimate/mountinfo.h"

enum neap_view_action { NEAP_VIEW_AS_IT_IS, NEAP_VIEW_READ_ONLY, NEAP_VIEW_OVERLAY };

enum neap_view_action neap_view_plan(const struct neap_mount *mount);

#endif
