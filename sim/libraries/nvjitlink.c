/* nvJitLink: only its version. */
#include <stddef.h>

#if STAND_IN_MAJOR == 12
#define MINOR 9
#else
#define MINOR 2
#endif

int nvJitLinkVersion(unsigned int *ret_major, unsigned int *ret_minor)
{
	if (!ret_major || !ret_minor)
		return 10; /* NVJITLINK_ERROR_NULL_INPUT */
	*ret_major = STAND_IN_MAJOR;
	*ret_minor = MINOR;
	return 0;
}
