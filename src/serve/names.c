/* serve/names.c: see names.h. */
#include "serve/names.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

/* Parses a name of letters, digits, '-' and '_', with dots between them, into small letters. */
static bool parse_labels(const char *text, size_t length, char ret_text[NEAP_SERVE_NAME_CAPACITY])
{
	if (length > 0 && text[length - 1] == '.')
		length--;
	if (length == 0 || length >= NEAP_SERVE_NAME_CAPACITY)
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];
		bool upper = c >= 'A' && c <= 'Z', dot = c == '.' && i > 0 && text[i - 1] != '.';
		if (!upper && !dot && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
			return false;
		ret_text[i] = upper ? (char)(c - 'A' + 'a') : c;
	}
	ret_text[length] = '\0';
	return text[length - 1] != '.';
}

bool neap_serve_name_parse(const char *text, size_t length, struct neap_serve_name *ret_name)
{
	struct neap_serve_name name = {0};
	char address[INET6_ADDRSTRLEN];
	bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
	if (bracketed) {
		text++;
		length -= 2;
	}
	if (length < sizeof address) {
		memcpy(address, text, length);
		address[length] = '\0';
		name.family = inet_pton(AF_INET6, address, name.address) == 1                ? AF_INET6
			      : !bracketed && inet_pton(AF_INET, address, name.address) == 1 ? AF_INET
											     : 0;
	}
	if (!name.family && (bracketed || !parse_labels(text, length, name.text)))
		return false;
	*ret_name = name;
	return true;
}

static bool is_same(const struct neap_serve_name *a, const struct neap_serve_name *b)
{
	return a->family == b->family && memcmp(a->address, b->address, sizeof a->address) == 0 &&
	       strcmp(a->text, b->text) == 0;
}

enum neap_status neap_serve_names_add(struct neap_serve_names *names, const char *text, struct neap_error *err)
{
	if (names->count == NEAP_SERVE_NAMES_MOST)
		return neap_fail(err, NEAP_ENOSPC, "more than %d names", NEAP_SERVE_NAMES_MOST);
	if (!neap_serve_name_parse(text, strlen(text), &names->names[names->count]))
		return neap_fail(err, NEAP_EINVAL, "'%.60s' is not a name or an address, such as gpu01.example.com",
				 text);
	names->count++;
	return NEAP_OK;
}

void neap_serve_names_add_own(struct neap_serve_names *names, bool full)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
	struct addrinfo *info = NULL;
	char name[NEAP_SERVE_NAME_CAPACITY] = "";
	if (gethostname(name, sizeof name - 1) != 0 || !*name)
		return;
	(void)neap_serve_names_add(names, name, NULL);
	if (full && getaddrinfo(name, NULL, &hints, &info) == 0) {
		if (info->ai_canonname)
			(void)neap_serve_names_add(names, info->ai_canonname, NULL);
		freeaddrinfo(info);
	}
	name[strcspn(name, ".")] = '\0';
	(void)neap_serve_names_add(names, name, NULL);
}

static bool is_loopback(const struct neap_serve_name *name)
{
	static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
	return name->family == AF_INET6  ? memcmp(name->address, &loopback, sizeof loopback) == 0
	       : name->family == AF_INET ? name->address[0] == 127
					 : strcmp(name->text, "localhost") == 0;
}

static bool is_local(const struct neap_serve_name *name, const struct sockaddr *local)
{
	if (!local || name->family != local->sa_family)
		return false;
	return name->family == AF_INET6
		       ? memcmp(name->address, &((const struct sockaddr_in6 *)local)->sin6_addr, 16) == 0
		       : memcmp(name->address, &((const struct sockaddr_in *)local)->sin_addr, 4) == 0;
}

/* Returns the length of a Host header without its port; 0: the header is malformed. */
static size_t strip_port(const char *host, size_t length)
{
	size_t digits = 0;
	unsigned port = 0;
	while (digits < length && host[length - 1 - digits] >= '0' && host[length - 1 - digits] <= '9')
		digits++;
	if (digits == length || host[length - 1 - digits] != ':')
		return length;
	for (size_t i = length - digits; i < length && port <= UINT16_MAX; i++)
		port = 10 * port + (unsigned)(host[i] - '0');
	return port <= UINT16_MAX ? length - digits - 1 : 0;
}

bool neap_serve_names_have(const struct neap_serve_names *names, const char *host, const struct sockaddr *local)
{
	struct neap_serve_name name;
	bool bracketed = host[0] == '[';
	size_t length = strlen(host);
	length = bracketed && host[length - 1] == ']' ? length : strip_port(host, length);
	/* An IPv6 address must stand in brackets: otherwise its last part would count as a port. */
	if (length == 0 || (!bracketed && memchr(host, ':', length)) || !neap_serve_name_parse(host, length, &name))
		return false;
	bool found = is_loopback(&name) || is_local(&name, local);
	for (size_t i = 0; i < names->count && !found; i++)
		found = is_same(&name, &names->names[i]);
	return found;
}
