#include "watch_stacks.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace neap_torch
{

namespace
{

constexpr size_t kSlots = 2 * kStacks; /* of the table; a power of two */
constexpr size_t kFileBytes = 16u << 20;
constexpr size_t kTextBytes = 400; /* of a file's or function's name */
constexpr size_t kLineBytes = kFrames * (2 * kTextBytes + 16) + 16;

struct Frame {
	const char *code;
	int offset; /* of the instruction, in bytes */
};

struct Slot {
	std::atomic<uint64_t> hash;   /* 0: free */
	std::atomic<uint32_t> number; /* plus 1; set before the hash */
	uint64_t names;               /* hash of the frames' files, lines and functions; under the lock */
};

struct Stacks {
	FrameLayout layout;
	const char *own, *torch;
	std::atomic<bool> readable{false}; /* the layout is set */
	void *(*thread)();
	int (*line_of)(const void *code, int offset);

	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the members below; a leaf */
	std::atomic<int> fd{-1};
	std::atomic<bool> full{false};
	uint32_t count = 0;
	size_t bytes = 0, most_bytes = 0;
	char line[kLineBytes];
	Slot slots[kSlots]; /* open addressing; read without the lock */
};

Stacks stacks;

template <typename T> T at(const char *object, int offset)
{
	T value;
	memcpy(&value, object + offset, sizeof value);
	return value;
}

const char *innermost()
{
	const FrameLayout &layout = stacks.layout;
	const char *frame = static_cast<const char *>(stacks.thread());
	frame = frame ? at<const char *>(frame, layout.thread_frame) : nullptr;
	return frame && layout.thread_second >= 0 ? at<const char *>(frame, layout.thread_second) : frame;
}

uint64_t mixed(uint64_t hash, uint64_t what) { return ((hash << 5 | hash >> 59) ^ what) * 0xff51afd7ed558ccdu; }

/* The hash of this thread's frames: of their code objects and instructions, as they stand there. Each allocation
 * pays for it, so nothing but the frames themselves is read. Most frames lie where they lay at the walk before: with
 * those addresses at hand the processor reads them side by side, and need not wait for each one to name the next.
 * Never 0; a thread without Python has no frames. */
uint64_t hash_frames(Path &path)
{
	const FrameLayout &layout = stacks.layout;
	uint64_t hash = 0;
	size_t count = 0;
	for (const char *frame = innermost(); frame && count < kWalked; count++) {
		uint64_t where =
			layout.at_scale ? at<uint32_t>(frame, layout.frame_at) : at<uint64_t>(frame, layout.frame_at);
		hash = mixed(hash, at<uint64_t>(frame, layout.frame_code) + where * 0x9e3779b97f4a7c15u);
		const char *next = at<const char *>(frame, layout.frame_back);
		if (path.frames[count] != next)
			path.frames[count] = next;
		frame = path.frames[count];
		__asm__("" : "+r"(frame)); /* or the compiler takes `next`, which is the same and comes later */
	}
	hash ^= hash >> 32;
	return hash ? hash : 1;
}

/* A str of Python's: `length` characters of `width` bytes; 0: not of a known kind. */
struct Str {
	const char *from;
	size_t length;
	int width;
	bool ascii;
};

Str str_at(const char *object)
{
	const FrameLayout &layout = stacks.layout;
	uint32_t state = at<uint32_t>(object, layout.text_state) & layout.state_mask;
	bool ascii = state == layout.state[0];
	int width = ascii || state == layout.state[1] ? 1
		    : state == layout.state[2]        ? 2
		    : state == layout.state[3]        ? 4
						      : 0;
	return {object + (ascii ? layout.text_ascii : layout.text_other), at<uint64_t>(object, layout.text_length),
		width, ascii};
}

/* Hashes its text, not its address: another text may lie where this one lay. */
uint64_t mixed_str(uint64_t hash, const char *object)
{
	Str str = str_at(object);
	size_t bytes = str.length * static_cast<size_t>(str.width), i = 0;
	for (; i + 8 <= bytes; i += 8)
		hash = mixed(hash, at<uint64_t>(str.from, static_cast<int>(i)));
	for (; i < bytes; i++)
		hash = mixed(hash, at<uint8_t>(str.from, static_cast<int>(i)));
	return mixed(hash, bytes);
}

/* Reads the frames of this thread, innermost first, and a hash of their files, lines and functions. */
size_t walk(Frame *frames, uint64_t *ret_names)
{
	const FrameLayout &layout = stacks.layout;
	uint64_t names = 0;
	size_t count = 0, walked = 0;
	for (const char *frame = innermost(); frame && walked < kWalked; walked++) {
		/* Newer versions keep marks in the lowest bits. */
		uint64_t word = at<uint64_t>(frame, layout.frame_code) & ~uint64_t{7};
		const char *code = reinterpret_cast<const char *>(word);
		/* A frame of the interpreter itself has something else there. */
		if (code && at<uint64_t>(code, sizeof(void *)) == layout.code_type) {
			int offset;
			if (layout.at_scale)
				offset = at<int32_t>(frame, layout.frame_at) * layout.at_scale;
			else
				offset = static_cast<int>(at<const char *>(frame, layout.frame_at) - code -
							  layout.code_start);
			names = mixed_str(names, at<const char *>(code, layout.code_name));
			names = mixed_str(names, at<const char *>(code, layout.code_file));
			names = mixed(names, static_cast<uint64_t>(stacks.line_of(code, offset)));
			frames[count++] = {code, offset};
		}
		frame = at<const char *>(frame, layout.frame_back);
	}
	*ret_names = names;
	return count;
}

/* Texts. */

struct Text {
	char *to;
	size_t capacity, length;
};

void put(Text &text, char byte)
{
	if (text.length + 1 < text.capacity)
		text.to[text.length++] = byte;
}

void put_character(Text &text, uint32_t character)
{
	if (character < 0x20 || character == 0x7f || (character >= 0xd800 && character < 0xe000)) {
		put(text, '?');
	} else if (character < 0x80) {
		put(text, static_cast<char>(character));
	} else if (character < 0x800) {
		put(text, static_cast<char>(0xc0 | character >> 6));
		put(text, static_cast<char>(0x80 | (character & 0x3f)));
	} else if (character < 0x10000) {
		put(text, static_cast<char>(0xe0 | character >> 12));
		put(text, static_cast<char>(0x80 | (character >> 6 & 0x3f)));
		put(text, static_cast<char>(0x80 | (character & 0x3f)));
	} else {
		put(text, static_cast<char>(0xf0 | character >> 18));
		put(text, static_cast<char>(0x80 | (character >> 12 & 0x3f)));
		put(text, static_cast<char>(0x80 | (character >> 6 & 0x3f)));
		put(text, static_cast<char>(0x80 | (character & 0x3f)));
	}
}

/* Writes a str; of one that is too long only the end, which says more about a path. */
void put_str(Text &text, const char *object)
{
	Str str = str_at(object);
	size_t most = kTextBytes / (str.width == 1 && str.ascii ? 1 : 4);
	for (size_t i = str.length > most ? str.length - most : 0; str.width && i < str.length; i++)
		put_character(text, str.width == 1   ? at<uint8_t>(str.from, static_cast<int>(i))
				    : str.width == 2 ? at<uint16_t>(str.from, static_cast<int>(2 * i))
						     : at<uint32_t>(str.from, static_cast<int>(4 * i)));
}

bool is_below(const char *code, const char *folder)
{
	char file[kTextBytes + 1];
	Text text = {file, sizeof file, 0};
	put_str(text, at<const char *>(code, stacks.layout.code_file));
	return folder && text.length > strlen(folder) && !memcmp(file, folder, strlen(folder));
}

/* Drops frames until kFrames remain: neap's own, then PyTorch's innermost, then the outermost. */
size_t choose(Frame *frames, size_t count)
{
	size_t left = 0, surplus = 0;
	for (size_t i = 0; i < count; i++)
		if (!is_below(frames[i].code, stacks.own))
			frames[left++] = frames[i];
	count = left;
	surplus = count > kFrames ? count - kFrames : 0;
	left = 0;
	for (size_t i = 0; i < count; i++) {
		if (surplus && is_below(frames[i].code, stacks.torch))
			surplus--;
		else
			frames[left++] = frames[i];
	}
	return left < kFrames ? left : kFrames;
}

void put_frames(Text &text, const Frame *frames, size_t count)
{
	const FrameLayout &layout = stacks.layout;
	for (size_t i = 0; i < count; i++) {
		char number[16];
		int line = stacks.line_of(frames[i].code, frames[i].offset);
		snprintf(number, sizeof number, "\t%d\t", line > 0 ? line : 0);
		put(text, '\t');
		put_str(text, at<const char *>(frames[i].code, layout.code_file));
		for (const char *c = number; *c; c++)
			put(text, *c);
		put_str(text, at<const char *>(frames[i].code, layout.code_name));
	}
}

/* The table and the file. */

/* The slot of this hash, or the free one where it belongs. */
Slot &find(uint64_t hash)
{
	size_t i = hash & (kSlots - 1);
	for (;; i = (i + 1) & (kSlots - 1)) {
		uint64_t there = stacks.slots[i].hash.load(std::memory_order_acquire);
		if (there == hash || !there)
			return stacks.slots[i];
	}
}

/* Writes a whole line, or none that counts. The lock is held. */
bool append(const char *line, size_t length)
{
	ssize_t written = -1;
	if (stacks.bytes + length <= stacks.most_bytes) {
		do
			written = write(stacks.fd, line, length);
		while (written < 0 && errno == EINTR);
	}
	stacks.bytes += length;
	stacks.full = stacks.full || written != static_cast<ssize_t>(length);
	return !stacks.full;
}

/* The number of these frames, which may be new. The lock is held. Leaves errno as it is: the allocator's caller may
 * look at it. */
uint32_t add(uint64_t hash, uint64_t names, Frame *frames, size_t count)
{
	Slot &slot = find(hash);
	/* Other code may lie where earlier code lay: the names and lines tell them apart. */
	if (slot.hash.load(std::memory_order_relaxed) && slot.names == names)
		return slot.number;
	if (stacks.full || stacks.fd < 0 || stacks.count >= kStacks) {
		stacks.full = stacks.full || stacks.count >= kStacks;
		return 0;
	}
	Text text = {stacks.line, sizeof stacks.line, 0};
	text.length = static_cast<size_t>(snprintf(stacks.line, sizeof stacks.line, "%u", stacks.count));
	put_frames(text, frames, choose(frames, count));
	stacks.line[text.length++] = '\n';
	int error = errno;
	bool appended = append(stacks.line, text.length);
	errno = error;
	if (!appended)
		return 0;
	slot.names = names;
	slot.number = ++stacks.count;
	slot.hash.store(hash, std::memory_order_release);
	return slot.number;
}

} // namespace

void stacks_layout(const FrameLayout *layout, const char *own, const char *torch)
{
	stacks.readable = false;
	if (!layout)
		return;
	stacks.layout = *layout;
	stacks.own = own;
	stacks.torch = torch;
	stacks.thread = reinterpret_cast<void *(*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
	stacks.line_of = reinterpret_cast<int (*)(const void *, int)>(dlsym(RTLD_DEFAULT, "PyCode_Addr2Line"));
	stacks.readable = stacks.thread && stacks.line_of;
}

/* A process that restarted in place continues the numbers of its file. */
static uint32_t count_lines(int fd)
{
	char part[4096];
	uint32_t lines = 0;
	for (ssize_t length; (length = read(fd, part, sizeof part)) > 0;)
		for (ssize_t i = 0; i < length; i++)
			lines += part[i] == '\n';
	return lines;
}

/* A process that writes beyond its limit is ended by a signal. */
static size_t most_bytes()
{
	struct rlimit limit = {};
	bool known = !getrlimit(RLIMIT_FSIZE, &limit);
	return known && limit.rlim_cur < kFileBytes ? limit.rlim_cur : kFileBytes;
}

bool stacks_open(const char *path, const char *header)
{
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	uint32_t lines = count_lines(fd);
	stacks_close();
	pthread_mutex_lock(&stacks.lock);
	for (Slot &slot : stacks.slots)
		slot.hash.store(0, std::memory_order_relaxed);
	stacks.count = lines ? lines - 1 : 0;
	stacks.bytes = static_cast<size_t>(lseek(fd, 0, SEEK_END));
	stacks.most_bytes = most_bytes();
	stacks.full = false;
	stacks.fd = fd;
	bool opened = lines || append(header, strlen(header));
	pthread_mutex_unlock(&stacks.lock);
	return opened;
}

void stacks_close()
{
	pthread_mutex_lock(&stacks.lock);
	int fd = stacks.fd.exchange(-1);
	pthread_mutex_unlock(&stacks.lock);
	if (fd >= 0)
		close(fd);
}

uint32_t stacks_number(Path &path, bool verify)
{
	if (!stacks.readable.load(std::memory_order_acquire) || stacks.fd.load(std::memory_order_relaxed) < 0)
		return 0;
	uint64_t hash = hash_frames(path), names = 0;
	Slot &slot = find(hash);
	if (!verify && slot.hash.load(std::memory_order_acquire) == hash)
		return slot.number.load(std::memory_order_relaxed);
	if (stacks.full)
		return 0;
	Frame frames[kWalked];
	size_t count = walk(frames, &names);
	pthread_mutex_lock(&stacks.lock);
	uint32_t number = count || !innermost() ? add(hash, names, frames, count) : 0;
	pthread_mutex_unlock(&stacks.lock);
	return number;
}

bool stacks_python() { return stacks.readable.load(std::memory_order_acquire) && innermost(); }

bool stacks_full() { return stacks.full; }

size_t stacks_text(char *text, size_t capacity)
{
	Frame frames[kWalked];
	uint64_t names = 0;
	Text out = {text, capacity, 0};
	if (stacks.readable)
		put_frames(out, frames, walk(frames, &names));
	text[out.length] = '\0';
	return out.length;
}

void stacks_abandon()
{
	pthread_mutex_init(&stacks.lock, nullptr); /* its owner may exist only in the parent */
	int fd = stacks.fd.exchange(-1);
	if (fd >= 0)
		close(fd);
}

} // namespace neap_torch
