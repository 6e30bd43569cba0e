/* torch/watch_stacks.h: the Python stack of an allocation, as a number, and the file that lists the stacks.
 *
 *   tracker, inside the allocator's lock --> stacks_number: walks this thread's frames --> its number, or
 *                                                           a new one, whose line it first appends to the file
 *
 * A thread that allocates has mostly released Python's lock, and must not wait for it here. So the frames are read
 * as they lie in memory: they belong to this thread, which is inside a call of C, and they keep their code objects
 * alive. Where the fields lie differs by Python's version: python/neap/_frames.py finds out, and checks what is read.
 *
 * The file is text, a complete line for each write(2):
 *
 *   neap-stacks 1 <TAB> torch VERSION <TAB> conf SETTINGS
 *   NUMBER [<TAB> FILE <TAB> LINE <TAB> FUNCTION]...           innermost first; control bytes are written as '?'
 *
 * A NUMBER alone is a thread without Python, as autograd's are. */
#ifndef NEAP_TORCH_WATCH_STACKS_H
#define NEAP_TORCH_WATCH_STACKS_H

#include <cstddef>
#include <cstdint>

namespace neap_torch
{

/* Where the fields lie, in bytes. python/neap/_frames.py has the same struct. */
struct FrameLayout {
	uint64_t code_type;    /* address of Python's type of code objects */
	int32_t thread_frame;  /* in a thread's state: its innermost frame; or a pointer to what has that */
	int32_t thread_second; /* there; below 0: thread_frame is the frame itself */
	int32_t frame_code;
	int32_t frame_back;
	int32_t frame_at;   /* the instruction */
	int32_t at_scale;   /* 0: a pointer into the code object; else an int of so many bytes each */
	int32_t code_start; /* the code object's first instruction */
	int32_t code_file;
	int32_t code_name;
	int32_t text_length;
	int32_t text_state;
	int32_t text_ascii; /* the characters of a str that is ASCII, and of any other one */
	int32_t text_other;
	uint32_t state_mask;
	uint32_t state[4]; /* masked, of a str that is ASCII, and of one with 1, 2 and 4 bytes a character */
};

constexpr size_t kFrames = 32;         /* of a line */
constexpr size_t kWalked = 128;        /* frames that tell stacks apart */
constexpr uint32_t kStacks = 1u << 16; /* of a file */

/* Where the frames lay at the last walk. Any content is valid, zeros too; one thread at a time uses it. */
struct Path {
	const char *frames[kWalked];
};

/* Sets the layout; NULL: no stacks any more. `own` and `torch`: the folders of neap's package, whose frames are left
 * out, and of PyTorch's, whose innermost frames go first where there are too many. The texts are borrowed. */
void stacks_layout(const FrameLayout *layout, const char *own, const char *torch);
/* Appends to the file, or begins it with the line `header`. False: it cannot be written, errno says why. */
bool stacks_open(const char *path, const char *header);
void stacks_close();
/* This thread's stack: its number plus 1. 0: there is no file, or it is full. Any
 * thread, with or without Python's lock. A stack is known by the addresses of its code objects and instructions; to
 * `verify` also compares the functions' names, which takes longer: an address may come to mean something else. */
uint32_t stacks_number(Path &path, bool verify);
/* Whether this thread has Python frames, as far as the layout lets them be read. */
bool stacks_python();
/* Whether stacks were left out because the file was full. */
bool stacks_full();
/* This thread's frames as they would be written, for a check. Returns the length; at most `capacity` - 1. */
size_t stacks_text(char *text, size_t capacity);
/* Call it in the child of a fork: the state becomes that before stacks_open. */
void stacks_abandon();

} // namespace neap_torch

#endif
