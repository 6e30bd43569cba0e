/* proto/socket.h: the functions for RUNTIME/PID.sock that agent and client share. Any thread. */
#ifndef NEAP_PROTO_SOCKET_H
#define NEAP_PROTO_SOCKET_H

#include "neap/status.h"

#include <sys/types.h>

/* The address of PID's socket. A path too long for sockets goes through /proc/self/fd: *ret_folder_fd must then stay
 * open while the address is used, and be closed after; else it is -1. */
struct sockaddr_un;
enum neap_status neap_socket_address(const char *runtime_folder, pid_t pid, struct sockaddr_un *ret_address,
				     int *ret_folder_fd, struct neap_error *err);

/* Whether the other end of a connected Unix socket is a process of this user. Errors: NEAP_EPERM, NEAP_EIO. */
enum neap_status neap_socket_check_peer(int fd, struct neap_error *err);

#endif
