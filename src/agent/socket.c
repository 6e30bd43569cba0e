/* agent/socket.c: the socket that the agent listens on. */
#include "agent/agent.h"

#include "agent/server.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "proto/socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum neap_status agent_open_socket(const char *folder, pid_t pid, int *ret_fd, struct neap_error *err)
{
	struct sockaddr_un address;
	int folder_fd = -1;
	enum neap_status status = neap_socket_address(folder, pid, &address, &folder_fd, err);
	if (status)
		return status;
	/* An existing socket was left by an earlier process of this PID, or by this one before an exec. */
	unlink(address.sun_path);
	int fd = neap_fd_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(fd, NEAP_SERVER_BACKLOG) != 0) {
		status = neap_fail_errno(err, errno, "opening the agent's socket in %s", folder);
		if (fd >= 0)
			close(fd);
	}
	if (folder_fd >= 0)
		close(folder_fd);
	if (!status)
		*ret_fd = fd;
	return status;
}

void agent_remove_socket(const char *folder, pid_t pid)
{
	struct sockaddr_un address;
	int folder_fd = -1;
	if (neap_socket_address(folder, pid, &address, &folder_fd, NULL) != NEAP_OK)
		return;
	unlink(address.sun_path);
	if (folder_fd >= 0)
		close(folder_fd);
}
