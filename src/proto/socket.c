/* proto/socket.c: see socket.h. */
#include "proto/socket.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum neap_status neap_socket_address(const char *runtime_folder, pid_t pid, struct sockaddr_un *ret_address,
				     int *ret_folder_fd, struct neap_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int folder_fd = -1;
	size_t capacity = sizeof address.sun_path;
	int length = snprintf(address.sun_path, capacity, "%s/%d.sock", runtime_folder, (int)pid);
	if (length < 0 || (size_t)length >= capacity) {
		folder_fd = open(runtime_folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (folder_fd < 0)
			return neap_fail_errno(err, errno, "opening the runtime folder %s", runtime_folder);
		snprintf(address.sun_path, capacity, "/proc/self/fd/%d/%d.sock", folder_fd, (int)pid);
	}
	*ret_address = address;
	*ret_folder_fd = folder_fd;
	return NEAP_OK;
}

enum neap_status neap_socket_check_peer(int fd, struct neap_error *err)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
		return neap_fail_errno(err, errno, "asking which process is on the other end of the socket");
	if (peer.uid != geteuid())
		return neap_fail(err, NEAP_EPERM, "on the other end of the socket is a process of user %u",
				 (unsigned)peer.uid);
	return NEAP_OK;
}
