/* torch/ipc.cpp: memory shared with other processes (CUDA IPC).
 *
 *   sender                                          receiver
 *   shareIpcHandle: a Name           --PyTorch-->   getIpcDevPtr: connects to the socket of that name,
 *   serve: a thread, once anything   <--socket---   asks for the block,
 *   was shared; one for each
 *   receiver: the block's pages as
 *   descriptors, a batch at a time   --socket-->    imports each page, maps them side by side, closes the descriptors
 *
 * PyTorch keeps the sender's block alive while a receiver has it, so its pages stay. A page may hold other blocks,
 * too: the receiver maps whole pages, as it would map a whole cudaMalloc segment. The socket's name is abstract, so
 * that no file is left behind. Everybody can read it in /proc/net/unix, token and all: so each side talks only to
 * processes of its own user, or of root. A forked child closes what it inherits of this (Kept): it would keep the pages,
 * and the name after its parent's end. A program may close descriptors that it does not know, and open others: then the
 * thread listens again. */
#include "allocator.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace neap_torch
{

constexpr char kMagic[8] = "neap-1";
constexpr size_t kBatch = 64;
constexpr int kDescriptor = 1; /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
constexpr int kSeconds = 30;
constexpr int kServeSeconds = 10;     /* how long the server waits for a slow receiver: others may be waiting */
constexpr int kReceivers = 8;         /* how many receivers are served at once */
constexpr int kLookMs = 1000;         /* how often to check that the listener is still there */
constexpr int kAgainMs = 3 * kLookMs; /* how long to try to reach a sender whose listener may be coming back */

struct Name {
	char magic[8];
	int64_t pid;
	uint64_t token[2];
	uint64_t block; /* the block's address in the sender */
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

/* A descriptor that its destructor closes. */
/* As base/descriptor.h: where the program has closed its standard descriptors, no file of neap's takes their place. */
static int above_standard(int fd)
{
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), cause = errno;
	close(fd);
	errno = cause;
	return above;
}

struct Descriptor {
	explicit Descriptor(int number) : fd(above_standard(number)) {}
	~Descriptor()
	{
		if (fd >= 0)
			close(fd);
	}
	Descriptor(const Descriptor &) = delete;
	Descriptor &operator=(const Descriptor &) = delete;
	int fd;
};

/* A descriptor of the sender's side: a forked child closes it. */
class Kept
{
      public:
	/* `opens` returns a descriptor, or -1. No fork happens during the call. */
	template <typename F> explicit Kept(F opens)
	{
		std::lock_guard<std::mutex> guard(lock);
		all.reserve(all.size() + 1);
		fd_ = above_standard(opens());
		struct stat info = {};
		if (fd_ >= 0 && !fstat(fd_, &info))
			all.push_back(was_ = {fd_, info.st_dev, info.st_ino});
	}
	~Kept()
	{
		std::lock_guard<std::mutex> guard(lock);
		if (fd_ >= 0 && is_same(was_))
			close(fd_);
		auto same = [this](const Opened &one) { return one.fd == was_.fd && one.inode == was_.inode; };
		all.erase(std::remove_if(all.begin(), all.end(), same), all.end());
	}
	Kept(const Kept &) = delete;
	Kept &operator=(const Kept &) = delete;
	int fd() const { return fd_; }
	/* Whether the descriptor is still ours: the program may have closed it. */
	bool is_ours() const { return fd_ >= 0 && is_same(was_); }

	static void before_fork() { lock.lock(); }
	static void after_fork() { lock.unlock(); }
	static void in_child()
	{
		for (const Opened &one : all)
			if (is_same(one))
				close(one.fd);
		all.clear();
		lock.unlock();
	}

      private:
	struct Opened {
		int fd;
		dev_t device;
		ino_t inode;
	};
	static bool is_same(const Opened &one)
	{
		struct stat info = {};
		return !fstat(one.fd, &info) && info.st_dev == one.device && info.st_ino == one.inode;
	}
	static std::mutex lock;
	static std::vector<Opened> &all; /* never destroyed: threads still serve while the process exits */
	int fd_ = -1;
	Opened was_ = {-1, 0, 0};
};
std::mutex Kept::lock;
std::vector<Kept::Opened> &Kept::all = *new std::vector<Kept::Opened>;

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

/* Sends descriptors in one message; its single byte of data means nothing. */
static bool send_descriptors(int to, const std::vector<std::unique_ptr<Kept>> &pages)
{
	std::vector<int> fds;
	for (const auto &page : pages)
		fds.push_back(page->fd());
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

/* Repeats a call that a signal interrupted: with a timeout set, the kernel does not, even with SA_RESTART. Repeats
 * for one timeout at most, however often signals come. */
template <typename F> static auto uninterrupted(F call)
{
	auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
	auto result = call();
	while (result < 0 && errno == EINTR && std::chrono::steady_clock::now() < until)
		result = call();
	return result;
}

/* Receives descriptors. Empty: the other side has ended, or does not answer. */
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

static void set_timeout(int fd, int seconds)
{
	timeval bound = {seconds, 0};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

/* Whether the other end belongs to this process's user or to root, by the kernel's word, not the peer's. */
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

/* Serves one receiver: the receiver names the block, and gets its pages. A failure closes the connection, and the
 * receiver reports that.
 */
void Allocator::serve_one(int peer) const
{
	Name wanted;
	neap_block_info block = {};
	if (recv(peer, &wanted, sizeof wanted, 0) != sizeof wanted) /* the receiver sends it in one call */
		return;
	Device *device = owner(reinterpret_cast<void *>(wanted.block), &block);
	if (!device)
		return;
	uint64_t page_bytes = libneap.neap_device_info(device->device())->page_bytes;
	if (!page_bytes) /* the peer may name a block of any device */
		return;
	uint64_t pages = page_count(block, page_bytes);
	for (uint64_t next = 0; next < pages;) {
		std::vector<std::unique_ptr<Kept>> batch;
		for (; next < pages && batch.size() < kBatch; next++) {
			uint64_t page = first_page(block.address, page_bytes) + next * page_bytes;
			batch.push_back(std::make_unique<Kept>([page]() { return export_page(page); }));
			if (batch.back()->fd() < 0)
				return;
		}
		if (!send_descriptors(peer, batch))
			return;
	}
}

/* Blocks all signals while a thread is started: the new thread inherits the mask, so signals go to the program's own
 * threads. */
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

/* Listens at the name that the handles carry, also when it listens again. */
std::unique_ptr<Kept> Allocator::listen_for_receivers() const
{
	Name name = {};
	sockaddr_un address;
	name.pid = getpid();
	memcpy(name.token, token_, sizeof token_);
	socklen_t length = socket_address(name, address);
	return std::make_unique<Kept>([&]() {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd >= 0 && !bind(fd, reinterpret_cast<sockaddr *>(&address), length) && !listen(fd, 128))
			return fd;
		int error = errno;
		if (fd >= 0)
			close(fd);
		errno = error;
		return -1;
	});
}

/* Serves one receiver in a thread of its own, so that a receiver that stalls keeps no other waiting. */
void Allocator::serve_apart(std::unique_ptr<Kept> peer)
{
	while (receivers_ >= kReceivers)
		usleep(10000);
	receivers_++;
	try {
		std::thread([this, kept = std::shared_ptr<Kept>(std::move(peer))]() {
			try {
				serve_one(kept->fd());
			} catch (...) {
			}
			receivers_--;
		}).detach();
	} catch (...) {
		receivers_--;
	}
}

/* The thread that serves receivers for the rest of the process, or until it can no longer listen. Then the next
 * tensor that is shared starts another one. */
void Allocator::serve(std::unique_ptr<Kept> listener) noexcept
{
	for (bool listening = true; listening;) {
		try {
			pollfd waiting = {listener->fd(), POLLIN, 0};
			poll(&waiting, 1, kLookMs);
			if (!listener->is_ours()) {
				listener = listen_for_receivers();
				listening = listener->fd() >= 0;
				continue;
			}
			if (!waiting.revents)
				continue;
			int from = listener->fd();
			auto peer = std::make_unique<Kept>(
				[from]() { return accept4(from, nullptr, nullptr, SOCK_CLOEXEC); });
			if (peer->fd() < 0) {
				usleep(10000); /* out of descriptors, say */
			} else if (is_trusted(peer->fd())) {
				set_timeout(peer->fd(), kServeSeconds);
				serve_apart(std::move(peer));
			}
		} catch (...) {
			usleep(10000); /* no host memory */
		}
	}
	std::lock_guard<std::mutex> guard(serving_);
	serving_pid_ = 0;
}

void Allocator::ensure_serving()
{
	static std::once_flag handled;
	std::lock_guard<std::mutex> guard(serving_);
	if (serving_pid_ == getpid())
		return;
	std::call_once(handled, []() { pthread_atfork(Kept::before_fork, Kept::after_fork, Kept::in_child); });
	if (token_pid_ != getpid()) {
		TORCH_CHECK(getrandom(token_, sizeof token_, 0) == sizeof token_,
			    "neap: no random numbers from the kernel");
		token_pid_ = getpid();
		receivers_ = 0; /* a parent's threads stayed in the parent */
	}
	std::unique_ptr<Kept> listener = listen_for_receivers();
	TORCH_CHECK(listener->fd() >= 0,
		    "neap: no socket by which other processes could ask for memory: ", strerror(errno));
	AllBlocked blocked;
	std::thread([this, kept = std::make_shared<std::unique_ptr<Kept>>(std::move(listener))]() {
		serve(std::move(*kept));
	}).detach();
	serving_pid_ = getpid();
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
	ensure_serving();
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

/* A range of addresses that shows another process's pages. */
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
				/* The device has failed, so no work uses the memory. An exception that left here
				 * would end the process. */
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

/* Asks the sender for the block. nullptr, with an errno: the sender does not listen. */
static std::unique_ptr<Descriptor> reach_sender(const Name &name)
{
	sockaddr_un address;
	socklen_t length = socket_address(name, address);
	auto peer = std::make_unique<Descriptor>(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (peer->fd < 0)
		return nullptr;
	set_timeout(peer->fd, kSeconds); /* connect needs it too: it waits while many others wait */
	auto reach = [&]() { return connect(peer->fd, reinterpret_cast<sockaddr *>(&address), length); };
	if (uninterrupted(reach))
		return nullptr;
	TORCH_CHECK(is_trusted(peer->fd), "neap: process ", name.pid,
		    ", which shared this tensor, has ended, and another user's answers under its name");
	return send(peer->fd, &name, sizeof name, MSG_NOSIGNAL) == sizeof name ? std::move(peer) : nullptr;
}

/* Receives the first pages. If the program closed the sender's descriptors, the sender listens again a moment
 * later. */
static std::vector<int> begin_import(const Name &name, std::unique_ptr<Descriptor> &ret_peer)
{
	auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kAgainMs);
	std::vector<int> fds;
	for (bool last = false; fds.empty() && !last; usleep(fds.empty() ? kLookMs * 100 : 0)) {
		ret_peer = reach_sender(name);
		int error = errno;
		bool gone = !ret_peer && kill(static_cast<pid_t>(name.pid), 0) && errno == ESRCH;
		last = gone || std::chrono::steady_clock::now() > until;
		TORCH_CHECK(ret_peer || !last, "neap: process ", name.pid,
			    ", which shared this tensor, cannot be reached: ", strerror(error));
		if (ret_peer)
			fds = receive_descriptors(ret_peer->fd);
	}
	return fds;
}

static std::shared_ptr<Imported> import_block(const Name &name)
{
	auto made = std::make_shared<Imported>();
	made->device = c10::cuda::current_device();
	made->pages = name.pages;
	made->page_bytes = name.page_bytes;
	TORCH_CHECK(!driver().cuMemAddressReserve(&made->address, name.pages * name.page_bytes, 0, 0, 0),
		    "neap: no addresses for another process's memory");
	std::unique_ptr<Descriptor> peer;
	std::vector<int> fds = begin_import(name, peer);
	while (made->mapped < name.pages) {
		bool whole = !fds.empty() && fds.size() <= name.pages - made->mapped;
		for (int fd : fds) {
			whole = whole && map_page(*made, fd);
			close(fd);
		}
		TORCH_CHECK(whole, "neap: process ", name.pid, " did not hand over the memory of this tensor");
		if (made->mapped < name.pages)
			fds = receive_descriptors(peer->fd);
	}
	Access access = {1, made->device, 3};
	TORCH_CHECK(!driver().cuMemSetAccess(made->address, name.pages * name.page_bytes, &access, 1),
		    "neap: the driver gives no access to another process's memory");
	return made;
}

/* Makes one mapping for all tensors of a block. PyTorch's own allocator opens the blocks that it has shared
 * itself. */
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
	for (auto at = imported_.begin(); at != imported_.end();) /* each sender leaves expired entries */
		at = at->second.expired() ? imported_.erase(at) : std::next(at);
	imported_[handle] = result;
	return result;
}

} // namespace neap_torch
