/* Reads what trace_data.c packed (trace_data.h says how) into typed arrays, and what is derived from them once: levels
 * after each event, places of addresses. Everything here is about events counted from 0 on a device. */
const NeapData = (function () {
	"use strict";
	const NEVER = 0x7fffffff; /* an end that is not in the trace */
	const utf8 = new TextDecoder();

	function pause() { return new Promise((go) => { setTimeout(go, 0); }); }

	function bytesOf(text, from, to) {
		const binary = atob(text.slice(from, to)), bytes = new Uint8Array(binary.length);
		for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
		return bytes;
	}

	/* The bytes of a script element that holds packed data; the element goes. */
	async function unpack(id) {
		const element = document.getElementById(id), text = element.textContent, piece = 1 << 19;
		element.remove();
		let at = 0;
		const packed = new ReadableStream({
			pull(controller) {
				if (at >= text.length) { controller.close(); return; }
				controller.enqueue(bytesOf(text, at, at + piece));
				at += piece;
			}
		});
		const plain = packed.pipeThrough(new DecompressionStream("deflate"));
		return new Uint8Array(await new Response(plain).arrayBuffer());
	}

	class Reader {
		constructor(bytes) { this.bytes = bytes; this.at = 0; }
		number() {
			const bytes = this.bytes;
			let value = 0, scale = 1;
			for (;;) {
				if (this.at >= bytes.length) throw new Error("the page's data ends early");
				const byte = bytes[this.at++];
				value += (byte & 0x7f) * scale;
				if (byte < 0x80) return value;
				scale *= 128;
			}
		}
		signed() { const value = this.number(); return value % 2 ? -(value + 1) / 2 : value / 2; }
		column(array) {
			for (let i = 0; i < array.length; i++) array[i] = this.number();
			return array;
		}
		/* Values that are given as differences. */
		sums(array, from) {
			let value = from || 0;
			for (let i = 0; i < array.length; i++) array[i] = value += this.number();
			return array;
		}
		part(length) {
			if (this.at + length > this.bytes.length) throw new Error("the page's data ends early");
			this.at += length;
			return this.bytes.subarray(this.at - length, this.at);
		}
		u64(count) {
			const part = this.part(8 * count), view = new DataView(part.buffer, part.byteOffset);
			const values = new Float64Array(count);
			for (let i = 0; i < count; i++)
				values[i] = view.getUint32(8 * i + 4, true) * 4294967296 + view.getUint32(8 * i, true);
			return values;
		}
		texts() {
			const lengths = this.column(new Float64Array(this.number())), texts = [];
			for (const length of lengths) texts.push(clean(utf8.decode(this.part(length))));
			return texts;
		}
	}

	/* A name can hold characters that turn the direction of writing and so show as another name. */
	function clean(text) {
		return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
	}

	function readNames(bytes) {
		const reader = new Reader(bytes), names = { texts: reader.texts() };
		const frames = reader.number();
		names.frameFile = reader.column(new Uint32Array(frames));
		names.frameName = reader.column(new Uint32Array(frames));
		names.frameLine = reader.column(new Uint32Array(frames));
		const calls = reader.number();
		names.callFrame = reader.column(new Uint32Array(calls));
		names.callParent = reader.column(new Uint32Array(calls));
		for (let i = 0; i < calls; i++) names.callParent[i] = i - names.callParent[i];
		names.callSite = reader.column(new Uint32Array(calls));
		names.sites = reader.texts();
		return names;
	}

	/* Lines of a stack, innermost first. */
	function stackLines(names, stack) {
		const lines = [];
		for (let call = stack; call && lines.length < 400; call = names.callParent[call]) {
			const frame = names.callFrame[call], file = names.texts[names.frameFile[frame]];
			const line = names.frameLine[frame];
			lines.push({ name: names.texts[names.frameName[frame]] || "?", place: file ? file + (line ? ":" + line : "") : "", python: file.endsWith(".py") });
		}
		return lines;
	}

	/* Where the highest value of a stretch is: by blocks of 64 and of 4096. */
	class Highest {
		constructor(values) {
			this.values = values;
			this.levels = [6, 12].map((shift) => {
				const best = new Int32Array(Math.ceil(values.length / (1 << shift)));
				for (let b = 0; b < best.length; b++) {
					let at = b << shift;
					for (let i = at + 1, end = Math.min(values.length, (b + 1) << shift); i < end; i++)
						if (values[i] > values[at]) at = i;
					best[b] = at;
				}
				return best;
			});
		}
		/* Of [low, high], the first such. */
		at(low, high) {
			const values = this.values;
			let best = low, i = low;
			while (i <= high) {
				let candidate = i, step = 1;
				if ((i & 4095) === 0 && i + 4095 <= high) { candidate = this.levels[1][i >> 12]; step = 4096; }
				else if ((i & 63) === 0 && i + 63 <= high) { candidate = this.levels[0][i >> 6]; step = 64; }
				if (values[candidate] > values[best]) best = candidate;
				i += step;
			}
			return best;
		}
	}

	async function readLives(reader, device) {
		device.sizes = reader.u64(reader.number());
		device.sizesRounded = reader.u64(device.sizes.length);
		device.addresses = reader.u64(reader.number());
		const count = device.count = reader.number(), before = device.before = reader.number();
		const begin = device.begin = new Int32Array(count), end = device.end = new Int32Array(count);
		const freed = device.freed = new Int32Array(count);
		begin.fill(-1, 0, before);
		reader.sums(begin.subarray(before));
		await pause();
		for (let i = 0; i < count; i++) {
			const span = reader.number();
			end[i] = span ? Math.max(begin[i], 0) + span - 1 : NEVER;
		}
		await pause();
		for (let i = 0; i < count; i++) {
			const span = reader.number();
			freed[i] = span ? (end[i] === NEVER ? device.events : end[i]) - span + 1 : NEVER;
		}
		await pause();
		device.size = reader.column(new Uint32Array(count));
		await pause();
		device.address = new Uint32Array(count);
		for (let i = 0, value = 0; i < count; i++) device.address[i] = value += reader.signed();
		await pause();
		device.stack = reader.column(new Uint32Array(count));
		device.freedStack = reader.column(new Uint32Array(count));
		await pause();
		device.stream = reader.column(new Uint16Array(count));
		device.category = reader.column(new Uint8Array(count));
	}

	function readPieces(reader) {
		const count = reader.number(), pieces = { count: count };
		pieces.begin = reader.column(new Int32Array(count));
		pieces.end = new Int32Array(count);
		for (let i = 0; i < count; i++) {
			const span = reader.number();
			pieces.begin[i]--;
			pieces.end[i] = span ? Math.max(pieces.begin[i], 0) + span - 1 : NEVER;
		}
		pieces.address = reader.u64(count);
		pieces.size = reader.u64(count);
		pieces.stack = reader.column(new Uint32Array(count));
		pieces.stream = reader.column(new Uint16Array(count));
		pieces.expandable = reader.column(new Uint8Array(count));
		return pieces;
	}

	function readRest(reader, device) {
		device.reservedKnown = reader.number() === 1;
		device.reservedStart = reader.number();
		const changes = reader.number();
		device.reservedEvents = reader.sums(new Int32Array(changes));
		device.reservedChanges = new Float64Array(changes);
		for (let i = 0; i < changes; i++) device.reservedChanges[i] = reader.signed();
		const failures = reader.number();
		device.failures = { count: failures, event: new Int32Array(failures), asked: new Float64Array(failures),
			free: new Float64Array(failures), stack: new Uint32Array(failures) };
		if (failures) {
			reader.sums(device.failures.event);
			reader.column(device.failures.asked);
			reader.column(device.failures.free);
			reader.column(device.failures.stack);
		}
		device.emptied = reader.sums(new Int32Array(reader.number()));
		device.steps = reader.sums(new Int32Array(reader.number()));
		const marks = reader.number();
		device.marks = { count: marks, event: reader.sums(new Int32Array(marks)), kind: reader.column(new Uint8Array(marks)),
			number: reader.column(new Float64Array(marks)), name: reader.column(new Uint32Array(marks)) };
		const times = reader.number();
		device.times = null;
		if (times) {
			device.firstTime = reader.u64(1)[0];
			device.times = reader.sums(new Float64Array(times));
		}
	}

	/* Requested and rounded bytes after each event from device.from on. */
	function addLevels(device) {
		const from = device.from, n = device.length;
		const requested = new Float64Array(n + 1), rounded = new Float64Array(n + 1);
		for (let i = 0; i < device.count; i++) {
			const size = device.sizes[device.size[i]], block = device.sizesRounded[device.size[i]];
			const begin = Math.max(device.begin[i] - from, 0);
			requested[begin] += size;
			if (device.end[i] - from < n) requested[Math.max(device.end[i] - from, 0)] -= size;
			if (device.freed[i] >= from || device.freed[i] === NEVER) {
				rounded[begin] += block;
				if (device.freed[i] - from < n) rounded[device.freed[i] - from] -= block;
			}
		}
		for (let i = 1; i <= n; i++) { requested[i] += requested[i - 1]; rounded[i] += rounded[i - 1]; }
		device.requested = new Highest(requested.subarray(0, n));
		device.rounded = new Highest(rounded.subarray(0, n));
		const reserved = new Float64Array(n);
		for (let i = 0, value = device.reservedStart, next = 0; i < n; i++) {
			while (next < device.reservedEvents.length && device.reservedEvents[next] - from <= i)
				value += device.reservedChanges[next++];
			reserved[i] = value;
		}
		device.reserved = new Highest(reserved);
	}

	/* Addresses without the gaps between what was ever reserved: device.place[number of an address], and regions. */
	function addPlaces(device) {
		const pieces = device.pieces, spans = [];
		for (let i = 0; i < pieces.count; i++) spans.push([pieces.address[i], pieces.address[i] + pieces.size[i]]);
		spans.sort((a, b) => a[0] - b[0]);
		let regions = merge(spans);
		/* Blocks outside of every segment that is known: odd, or the segments are not. */
		const widest = new Float64Array(device.addresses.length), outside = [];
		for (let i = 0; i < device.count; i++)
			widest[device.address[i]] = Math.max(widest[device.address[i]], device.sizesRounded[device.size[i]]);
		for (let i = 0; i < widest.length; i++) {
			const region = regions[regionBelow(regions, device.addresses[i])];
			if (!region || device.addresses[i] + widest[i] > region[1])
				outside.push([device.addresses[i], device.addresses[i] + Math.max(widest[i], 1)]);
		}
		if (outside.length) regions = merge(spans.concat(outside).sort((a, b) => a[0] - b[0]));
		const bytes = regions.reduce((sum, region) => sum + region[1] - region[0], 0);
		const gap = regions.length > 1 ? Math.min(bytes / 150, bytes / 6 / regions.length) : 0;
		let at = 0;
		device.regions = regions.map((region) => {
			const made = { low: region[0], high: region[1], place: at };
			at += region[1] - region[0] + gap;
			return made;
		});
		device.space = Math.max(at - gap, 1);
		device.spaceBytes = bytes;
		device.place = device.addresses.map((address) => placeOf(device, address));
		pieces.place = pieces.address.map((address) => placeOf(device, address));
	}

	function merge(spans) {
		const regions = [];
		for (const span of spans) {
			const last = regions[regions.length - 1];
			if (last && span[0] <= last[1]) last[1] = Math.max(last[1], span[1]);
			else regions.push([span[0], span[1]]);
		}
		return regions;
	}

	/* Index of the last region that begins at or below; -1: none. */
	function regionBelow(regions, address) {
		let low = 0, high = regions.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (regions[middle][0] <= address) low = middle + 1; else high = middle;
		}
		return low - 1;
	}

	function placeOf(device, address) {
		let low = 0, high = device.regions.length - 1;
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (device.regions[middle].low <= address) low = middle; else high = middle - 1;
		}
		const region = device.regions[low];
		return region.place + Math.min(Math.max(address - region.low, 0), region.high - region.low);
	}

	async function readDevice(facts, hasAddresses) {
		const reader = new Reader(await unpack("data-" + facts.device)), device = { facts: facts, events: facts.events };
		await pause();
		device.from = reader.number();
		device.to = reader.number();
		device.length = device.to - device.from;
		await readLives(reader, device);
		await pause();
		device.pieces = readPieces(reader);
		readRest(reader, device);
		await pause();
		addLevels(device);
		await pause();
		device.hasAddresses = hasAddresses && (device.pieces.count > 0 || device.count > 0);
		if (device.hasAddresses) addPlaces(device);
		return device;
	}

	return { NEVER: NEVER, unpack: unpack, readNames: readNames, readDevice: readDevice, stackLines: stackLines,
		placeOf: placeOf, pause: pause };
})();
