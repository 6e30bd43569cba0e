/* estimate/view_plan.c: see view_plan.h. */
#include "estimate/view_plan.h"

#include <string.h>

/* What a program reaches there is the kernel's state, devices or a service, not files. (An automounter's folder holds
 * nothing but mount points.) */
static const char *const kernels[] = {"proc",   "sysfs",      "cgroup",    "cgroup2",     "devpts",
				      "mqueue", "debugfs",    "tracefs",   "securityfs",  "bpf",
				      "pstore", "configfs",   "efivarfs",  "fusectl",     "autofs",
				      "nsfs",   "rpc_pipefs", "selinuxfs", "binfmt_misc", "resctrl"};

static bool is_of_the_kernel(const char *type)
{
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (strcmp(type, kernels[i]) == 0)
			return true;
	return false;
}

/* /dev is a tmpfs in a container; a device can be written on a read-only mount all the same. */
static bool holds_devices(const struct neap_mount *mount)
{
	return strcmp(mount->type, "devtmpfs") == 0 || strcmp(mount->type, "hugetlbfs") == 0 ||
	       (neap_path_is_below(mount->path, "/dev") && !neap_path_is_below(mount->path, "/dev/shm"));
}

enum neap_view_action neap_view_plan(const struct neap_mount *mount)
{
	if (mount->read_only || is_of_the_kernel(mount->type))
		return NEAP_VIEW_AS_IT_IS;
	return holds_devices(mount) ? NEAP_VIEW_READ_ONLY : NEAP_VIEW_OVERLAY;
}
