/* torch/ipc.cpp: memory shared with other processes (CUDA IPC).
 *
 *   sender                                          receiver
 *   shareIpcHandle: a Name           --PyTorch-->   getIpcDevPtr: connects to the socket of that name,
 *   serve: a thread, once anything   <--socket---   asks for the block,
 *   was shared: the block's pages as
 *   descriptors, a batch at a time   --socket-->    imports each page, maps them side by side, closes the descriptors
 *
 * PyTorch keeps the sender's block alive while a receiver has it, so its pages stay. A page may hold other blocks,
 * too: the receiver maps whole pages, as it would map a whole cudaMalloc segment. The socket's name is abstract, so
 * that no file is left behind. Everybody can read it in /proc/net/unix, token and all: so each side talks only to
 * processes of its own user, or of root. */
#include "allocator.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace neap_torch
{

constexpr char kMagic[8] = "neap-1";
constexpr size_t kBatch = 64;
constexpr int kDescriptor = 1; /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
constexpr int kSeconds = 30;

struct Name {
	char magic[8];
	int64_t pid;
	uint64_t token[2];
	uint64_t block; /* its address in the sender */
	uint64_t pages, page_bytes;
};

/* The driver's functions, which libtorch loaded. */
struct Driver {
	int (*cuMemRetainAllocationHandle)(uint64_t *, void *);
	int (*cuMemExportToShareableHandle)(void *, uint64_t, int, uint64_t);
	int (*cuMemImportFromShareableHandle)(uint64_t *, void *, int);
	int (*cuMemAddressReserve)(uint64_t *, size_t, size_t, uint64_t, uint64_t);
	int (*cuMemAddressFree)(uint64_t, size_t);
	int (*cuMemMap)(uint64_t, size_t, size_t, uint64_t, uint64_t);
	int (*cuMemUnmap)(uint64_t, size_t);
	int (*cuMemSetAccess)(uint64_t, size_t, const Access *, size_t);
	int (*cuMemRelease)(uint64_t);
};

static const Driver &driver()
{
	static const Driver found = []() {
		Driver functions = {};
		void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
#define FIND(name)                                                                                                   \
	functions.name = library ? reinterpret_cast<decltype(functions.name)>(dlsym(library, #name)) : nullptr;      \
	TORCH_CHECK(functions.name, "neap: this driver has no " #name ", by which memory is shared between "         \
								      "processes")
		FIND(cuMemRetainAllocationHandle);
		FIND(cuMemExportToShareableHandle);
		FIND(cuMemImportFromShareableHandle);
		FIND(cuMemAddressReserve);
		FIND(cuMemAddressFree);
		FIND(cuMemMap);
		FIND(cuMemUnmap);
		FIND(cuMemSetAccess);
		FIND(cuMemRelease);
#undef FIND
		return functions;
	}();
	return found;
}

/* A descriptor that is closed at the end of its block. */
struct Descriptor {
	explicit Descriptor(int number) : fd(number) {}
	~Descriptor()
	{
		if (fd >= 0)
			close(fd);
	}
	Descriptor(const Descriptor &) = delete;
	Descriptor &operator=(const Descriptor &) = delete;
	int fd;
};

static socklen_t socket_address(const Name &name, sockaddr_un &address)
{
	address = {};
	address.sun_family = AF_UNIX;
	int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "neap-share-%lld-%016llx%016llx",
			      static_cast<long long>(name.pid), static_cast<unsigned long long>(name.token[0]),
			      static_cast<unsigned long long>(name.token[1]));
	return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

static uint64_t first_page(uint64_t address, uint64_t page_bytes) { return address / page_bytes * page_bytes; }

static uint64_t page_count(const neap_block_info &block, uint64_t page_bytes)
{
	uint64_t end = block.address + block.bytes;
	return (end - first_page(block.address, page_bytes) + page_bytes - 1) / page_bytes;
}

/* Descriptors in one message, whose single byte of data says nothing. */
static bool send_descriptors(int to, const std::vector<int> &fds)
{
	alignas(cmsghdr) char control[CMSG_SPACE(kBatch * sizeof(int))] = {};
	char byte = 0;
	iovec data = {&byte, 1};
	msghdr message = {};
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
	cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
	memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
	return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

/* Calls again what a signal interrupted: with a timeout set, the kernel does not, even with SA_RESTART. Not for longer
 * than one timeout, however often signals come. */
template <typename F> static auto uninterrupted(F call)
{
	auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
	auto result = call();
	while (result < 0 && errno == EINTR && std::chrono::steady_clock::now() < until)
		result = call();
	return result;
}

/* Empty: the other side has ended, or does not answer. */
static std::vector<int> receive_descriptors(int from)
{
	alignas(cmsghdr) char control[CMSG_SPACE(kBatch * sizeof(int))];
	char byte;
	iovec data = {&byte, 1};
	msghdr message = {};
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof control;
	std::vector<int> fds;
	if (uninterrupted([&]() { return recvmsg(from, &message, MSG_CMSG_CLOEXEC); }) != 1)
		return fds;
	cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
		return fds;
	fds.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds.data(), CMSG_DATA(header), fds.size() * sizeof(int));
	return fds;
}

static void set_timeout(int fd)
{
	timeval bound = {kSeconds, 0};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

/* Whether the other end belongs to this process's user, or to root: the kernel says so, not the peer. */
static bool is_trusted(int fd)
{
	ucred peer = {};
	socklen_t length = sizeof peer;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) && length == sizeof peer &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

/* -1: the driver refuses. */
static int export_page(uint64_t address)
{
	uint64_t handle = 0;
	int fd = -1;
	if (driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void *>(address)))
		return -1;
	if (driver().cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0))
		fd = -1;
	driver().cuMemRelease(handle);
	return fd;
}

/* One receiver: it names the block, and gets its pages. A failure closes the connection, which the receiver reports.
 */
void Allocator::serve_one(int peer) const
{
	Name wanted;
	neap_block_info block = {};
	if (recv(peer, &wanted, sizeof wanted, MSG_WAITALL) != sizeof wanted)
		return;
	Device *device = owner(reinterpret_cast<void *>(wanted.block), &block);
	if (!device)
		return;
	uint64_t page_bytes = libneap.neap_device_info(device->device())->page_bytes;
	if (!page_bytes) /* the peer may name a block of any device */
		return;
	uint64_t pages = page_count(block, page_bytes);
	for (uint64_t next = 0; next < pages;) {
		std::vector<int> fds;
		for (; next < pages && fds.size() < kBatch; next++) {
			int fd = export_page(first_page(block.address, page_bytes) + next * page_bytes);
			if (fd < 0)
				break;
			fds.push_back(fd);
		}
		bool sent = !fds.empty() && send_descriptors(peer, fds);
		for (int fd : fds)
			close(fd);
		if (!sent)
			return;
	}
}

/* The thread that serves receivers, for the rest of the process. */
void Allocator::serve(int listener) const noexcept
{
	for (;;) {
		Descriptor peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
		if (peer.fd < 0) {
			usleep(10000); /* out of descriptors, say */
			continue;
		}
		if (!is_trusted(peer.fd))
			continue;
		try {
			set_timeout(peer.fd);
			serve_one(peer.fd);
		} catch (...) {
		}
	}
}

/* Signals are for the program's threads: one that is started meanwhile gets none. */
struct AllBlocked {
	AllBlocked()
	{
		sigset_t all;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
	}
	~AllBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
	AllBlocked(const AllBlocked &) = delete;
	AllBlocked &operator=(const AllBlocked &) = delete;
	sigset_t before;
};

void Allocator::start_serving()
{
	Name name = {};
	sockaddr_un address;
	name.pid = getpid();
	TORCH_CHECK(getrandom(token_, sizeof token_, 0) == sizeof token_, "neap: no random numbers from the kernel");
	memcpy(name.token, token_, sizeof token_);
	Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	socklen_t length = socket_address(name, address);
	TORCH_CHECK(listener.fd >= 0 && !bind(listener.fd, reinterpret_cast<sockaddr *>(&address), length) &&
			    !listen(listener.fd, 128),
		    "neap: no socket by which other processes could ask for memory: ", strerror(errno));
	AllBlocked blocked;
	std::thread([this, fd = listener.fd]() { serve(fd); }).detach();
	listener.fd = -1;
}

#ifdef NEAP_HAS_ShareableHandle
cca::ShareableHandle Allocator::shareIpcHandle(void *pointer)
{
	neap_block_info block = {};
	Device *device = owner(pointer, &block);
	if (!device && delegates_)
		return native_->shareIpcHandle(pointer);
	TORCH_CHECK(device, "invalid device pointer: ", pointer);
	uint64_t page_bytes = libneap.neap_device_info(device->device())->page_bytes;
	TORCH_CHECK(page_bytes,
		    "neap: this device has no virtual memory management, by which neap shares memory with "
		    "other processes. Use PyTorch's own allocator (neap run --allocator default).");
	Descriptor tried(export_page(first_page(block.address, page_bytes)));
	TORCH_CHECK(tried.fd >= 0, "neap: the driver exports no memory to other processes here. Share tensors from a "
				   "torch.cuda.MemPool(no_split=True), or use PyTorch's own allocator (neap run "
				   "--allocator default).");
	std::call_once(serving_, [this]() { start_serving(); });
	Name name = {};
	memcpy(name.magic, kMagic, sizeof kMagic);
	name.pid = getpid();
	memcpy(name.token, token_, sizeof token_);
	name.block = block.address;
	name.pages = page_count(block, page_bytes);
	name.page_bytes = page_bytes;
	uint64_t offset = block.address - first_page(block.address, page_bytes);
	return {static_cast<ptrdiff_t>(offset), std::string(reinterpret_cast<const char *>(&name), sizeof name)};
}
#endif

/* A stretch of addresses with another process's pages. */
struct Imported {
	uint64_t address = 0, pages = 0, mapped = 0, page_bytes = 0;
	c10::DeviceIndex device = 0;

	~Imported()
	{
		if (mapped) {
			try {
				c10::DeviceGuard on(c10::Device(c10::DeviceType::CUDA, device));
				(void)cudaDeviceSynchronize();
			} catch (...) {
				/* The device has failed: nothing runs on the memory. Out of here it would end us. */
			}
			driver().cuMemUnmap(address, mapped * page_bytes);
		}
		if (address)
			driver().cuMemAddressFree(address, pages * page_bytes);
	}
};

static bool map_page(Imported &to, int fd)
{
	uint64_t handle = 0;
	if (driver().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
						    kDescriptor))
		return false;
	int result = driver().cuMemMap(to.address + to.mapped * to.page_bytes, to.page_bytes, 0, handle, 0);
	driver().cuMemRelease(handle); /* the mapping holds it */
	to.mapped += !result;
	return !result;
}

static std::shared_ptr<Imported> import_block(const Name &name)
{
	sockaddr_un address;
	socklen_t length = socket_address(name, address);
	Descriptor peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	set_timeout(peer.fd); /* of connect, too, which waits while many others do */
	auto reach = [&]() { return connect(peer.fd, reinterpret_cast<sockaddr *>(&address), length); };
	TORCH_CHECK(peer.fd >= 0 && !uninterrupted(reach), "neap: process ", name.pid,
		    ", which shared this tensor, cannot be reached: ", strerror(errno));
	TORCH_CHECK(is_trusted(peer.fd), "neap: process ", name.pid,
		    ", which shared this tensor, has ended, and another user's answers under its name");
	TORCH_CHECK(send(peer.fd, &name, sizeof name, MSG_NOSIGNAL) == sizeof name, "neap: process ", name.pid,
		    " does not answer");
	auto made = std::make_shared<Imported>();
	made->device = c10::cuda::current_device();
	made->pages = name.pages;
	made->page_bytes = name.page_bytes;
	TORCH_CHECK(!driver().cuMemAddressReserve(&made->address, name.pages * name.page_bytes, 0, 0, 0),
		    "neap: no addresses for another process's memory");
	while (made->mapped < name.pages) {
		std::vector<int> fds = receive_descriptors(peer.fd);
		bool whole = !fds.empty() && fds.size() <= name.pages - made->mapped;
		for (int fd : fds) {
			whole = whole && map_page(*made, fd);
			close(fd);
		}
		TORCH_CHECK(whole, "neap: process ", name.pid, " did not hand over the memory of this tensor");
	}
	Access access = {1, made->device, 3};
	TORCH_CHECK(!driver().cuMemSetAccess(made->address, name.pages * name.page_bytes, &access, 1),
		    "neap: the driver gives no access to another process's memory");
	return made;
}

/* One mapping for all tensors of a block. What PyTorch's own allocator has shared, that one opens. */
std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
	Name name;
	if (handle.size() != sizeof name || memcmp(handle.data(), kMagic, sizeof kMagic) != 0)
		return delegate().getIpcDevPtr(std::move(handle));
	memcpy(&name, handle.data(), sizeof name);
	TORCH_CHECK(name.page_bytes && name.pages && name.page_bytes < 1ull << 40 && name.pages < 1ull << 20,
		    "neap: this is not the handle of a shared block");
	std::lock_guard<std::mutex> guard(importing_);
	if (std::shared_ptr<void> found = imported_[handle].lock())
		return found;
	std::shared_ptr<Imported> made = import_block(name);
	std::shared_ptr<void> result(made, reinterpret_cast<void *>(made->address));
	for (auto at = imported_.begin(); at != imported_.end();) /* each sender leaves some behind */
		at = at->second.expired() ? imported_.erase(at) : std::next(at);
	imported_[handle] = result;
	return result;
}

} // namespace neap_torch
