/* Beside the charts: who holds the memory at the cursor, one allocation in words, the segments at the cursor. */
"use strict";

/* ---- panels of text ---- */

function element(tag, text, className) {
	const made = document.createElement(tag);
	if (text !== undefined) made.textContent = text;
	if (className) made.className = className;
	return made;
}

function sums(group) {
	const found = new Map();
	let total = 0;
	for (let i = 0; i < device.count; i++) {
		if (device.begin[i] > cursor) break;
		if (device.end[i] <= cursor) continue;
		const key = group.of(i), bytes = bytesOf(i);
		let sum = found.get(key);
		if (!sum) found.set(key, sum = { key: key, bytes: 0, blocks: 0 });
		sum.bytes += bytes;
		sum.blocks++;
		total += bytes;
	}
	return { total: total, list: Array.from(found.values()).sort((a, b) => b.bytes - a.bytes) };
}

function choose(kind, value) {
	const same = chosen !== null && chosen.kind === kind && chosen.value === value;
	chosen = same || kind === null ? null : { kind: kind, value: value, of: groups[kind].of };
	$("unselect").hidden = chosen === null;
	fillHeld();
	fillLegend();
	drawSegments();
	redraw();
}

function fillHeld() {
	const kind = $("by").value, held = sums(groups[kind]), body = $("held").querySelector("tbody"), top = 12;
	body.textContent = "";
	for (const sum of held.list.slice(0, top)) {
		const row = element("tr"), cell = element("td"), button = element("button", groups[kind].text(sum.key));
		row.append(element("td", size(sum.bytes), "right"), element("td", (100 * sum.bytes / (held.total || 1)).toFixed(1), "right"), element("td", count(sum.blocks), "right"), cell);
		button.type = "button";
		button.title = "show where";
		const on = chosen !== null && chosen.kind === kind && chosen.value === sum.key;
		button.setAttribute("aria-pressed", String(on));
		if (on) row.className = "selected";
		button.addEventListener("click", () => choose(kind, sum.key));
		cell.append(button);
		body.append(row);
	}
	const rest = held.list.slice(top);
	if (rest.length) {
		const row = element("tr");
		const bytes = rest.reduce((sum, item) => sum + item.bytes, 0), blocks = rest.reduce((sum, item) => sum + item.blocks, 0);
		row.append(element("td", size(bytes), "right"), element("td", (100 * bytes / (held.total || 1)).toFixed(1), "right"), element("td", count(blocks), "right"), element("td", count(rest.length) + " more", "quiet"));
		body.append(row);
	}
	if (!held.list.length) { const row = element("tr"), cell = element("td", "nothing is live here", "quiet"); cell.colSpan = 4; row.append(cell); body.append(row); }
	$("cursor").textContent = instant(cursor) + ": " + size(held.total) + " requested";
}

function legendItem(name, bytes, color) {
	const item = element("button"), dot = element("i");
	dot.style.background = color;
	item.type = "button";
	item.append(dot, element("span", name));
	if (bytes !== null) item.append(element("b", size(bytes)));
	return item;
}

/* Purposes have their places, whatever is live at the cursor; of the others there may be many, and the largest come first. */
function legendSums(kind, held) {
	if (kind !== "category") return held.list.slice(0, 12);
	const found = new Map(held.list.map((sum) => [sum.key, sum]));
	return Array.from(device.purposes, (key) => found.get(key) || { key: key, bytes: 0 });
}

/* What a purpose is, as the page's table of words has it. */
function meaning(purpose) {
	return $("word-" + purpose.replace(/ /g, "-")).textContent;
}

function fillLegend() {
	const kind = $("color").value, group = groupOfColor[kind], held = sums(groups[group]), legend = $("legend");
	legend.textContent = "";
	$("meaning").textContent = chosen !== null && chosen.kind === "category" ? meaning(words.categories[chosen.value]) : "";
	for (const sum of legendSums(kind, held)) {
		const item = legendItem(groups[group].text(sum.key), sum.bytes, cssColor(kind, sum.key));
		item.setAttribute("aria-pressed", String(chosen !== null && chosen.kind === group && chosen.value === sum.key));
		item.addEventListener("click", () => choose(group, sum.key));
		legend.append(item);
	}
	const lines = [["requested", null], ["rounded", null]];
	if (device.reservedKnown) lines.push(["reserved", null], ["cached", cachedAt(cursor)]);
	for (const [word, bytes] of lines) {
		const item = legendItem(word === "rounded" ? "rounded (PyTorch's allocated)" : word, bytes, "var(--" + word + ")");
		if (bytes === null) item.querySelector("i").style.height = "3px";
		item.setAttribute("popovertarget", "word-" + word);
		legend.append(item);
	}
	if (device.facts.limit) {
		const item = legendItem("limit " + size(device.facts.limit), null, "var(--bad)");
		item.querySelector("i").style.height = "3px";
		item.disabled = true;
		legend.append(item);
	}
}

function lifeFacts(life) {
	const bytes = bytesOf(life), rounded = device.sizesRounded[device.size[life]], begin = device.begin[life], freed = device.freed[life], end = device.end[life];
	const list = [["size", size(bytes) + (bytes >= 1024 ? " (" + count(bytes) + " bytes)" : "") + (rounded !== bytes ? ", rounded " + size(rounded) : "")],
		["for", words.categories[device.category[life] >> 2] + (device.category[life] % 4 < 3 ? " (by " + words.hows[device.category[life] % 4] + ")" : "")],
		["by", holderText(holderOf(life))], ["stream", words.streams[device.stream[life]]],
		["allocated", instant(begin)], ["freed", freed === NEVER ? "not within the trace" : instant(freed)]];
	if (end !== freed) list.push(["reusable", end === NEVER ? "not within the trace: a stream still uses it" : instant(end)]);
	const to = end === NEVER ? device.events : end, from = Math.max(begin, 0), t0 = timeOf(from), t1 = timeOf(Math.min(to, device.to - 1));
	list.push(["lived", (begin < 0 || end === NEVER ? "at least " : "") + count(to - from) + " events" + (t0 !== null && t1 !== null ? ", " + duration(t1 - t0) : "")]);
	if (device.hasAddresses) list.push(["address", hex(device.addresses[device.address[life]])]);
	return list;
}

function frameList(lines) {
	const list = element("ol");
	for (const line of lines) list.append(element("li", line.name + (line.place ? "  " + line.place : "")));
	return list;
}

function fillDetails() {
	const panel = $("details");
	panel.textContent = "";
	panel.append(element("h3", "Allocation"));
	if (pinned < 0) { panel.append(element("p", "Point at one; a click keeps it here.", "quiet")); return; }
	const list = element("dl");
	for (const [name, text] of lifeFacts(pinned)) list.append(element("dt", name), element("dd", text));
	panel.append(list);
	for (const [title, stack] of [["allocated here", device.stack[pinned]], ["freed here", device.freedStack[pinned]]]) {
		const lines = NeapData.stackLines(names, stack), python = lines.filter((line) => line.python), others = lines.filter((line) => !line.python);
		if (!lines.length) continue;
		panel.append(element("h4", title));
		if (python.length) panel.append(frameList(python));
		if (others.length) {
			const folded = element("details");
			folded.append(element("summary", count(others.length) + (others.length === 1 ? " frame" : " frames") + " of C++"), frameList(others));
			folded.open = !python.length;
			panel.append(folded);
		}
	}
	if (!device.stack[pinned]) panel.append(element("p", "The file has no stack for it.", "quiet"));
}

function pin(life) { pinned = life; fillDetails(); drawSegments(); changed(); }

function moveCursor(event) {
	cursor = Math.min(Math.max(event, device.from), Math.max(device.to - 1, device.from));
	fillHeld();
	fillLegend();
	fillFlame();
	takeSegments();
	changed();
}

/* ---- segments at the cursor ---- */

let segments = [], segmentHits = [];
const ROW = 26;

function takeSegments() {
	segments = [];
	if (!device.hasAddresses) return;
	const pieces = device.pieces;
	const live = [];
	for (let p = 0; p < pieces.count; p++)
		if (pieces.begin[p] <= cursor && pieces.end[p] > cursor) live.push(p);
	live.sort((a, b) => pieces.address[a] - pieces.address[b]);
	for (const p of live) {
		const last = segments[segments.length - 1], low = pieces.address[p], high = low + pieces.size[p];
		if (last && last.expandable && pieces.expandable[p] && last.high === low && last.stream === pieces.stream[p]) last.high = high;
		else segments.push({ low: low, high: high, expandable: pieces.expandable[p] === 1, stream: pieces.stream[p], begin: pieces.begin[p], blocks: [] });
	}
	const blocks = [];
	for (let i = 0; i < device.count && device.begin[i] <= cursor; i++) if (device.end[i] > cursor) blocks.push(i);
	blocks.sort((a, b) => device.addresses[device.address[a]] - device.addresses[device.address[b]]);
	let at = 0;
	for (const life of blocks) {
		const address = device.addresses[device.address[life]];
		while (at < segments.length && segments[at].high <= address) at++;
		if (at < segments.length && segments[at].low <= address) segments[at].blocks.push(life);
	}
	let reserved = 0, free = 0, held = 0;
	for (const segment of segments) {
		measure(segment);
		reserved += segment.high - segment.low;
		free += segment.free;
		held += segment.blocks.length ? segment.free : 0;
	}
	$("cursor2").textContent = instant(cursor);
	$("segmentsum").textContent = count(segments.length) + " segments, " + size(reserved) + " reserved, " + size(free) + " free in them; " + size(held) + " of that beside a live block" + (device.facts.leftOut ? "; " + count(device.facts.leftOut) + " segments were too many at once and are left out" : "");
	sortSegments();
}

function measure(segment) {
	let end = segment.low;
	segment.free = 0;
	segment.largest = 0;
	for (const life of segment.blocks) {
		const address = device.addresses[device.address[life]], hole = Math.max(address - end, 0);
		segment.free += hole;
		segment.largest = Math.max(segment.largest, hole);
		end = Math.max(end, address + device.sizesRounded[device.size[life]]);
	}
	const hole = Math.max(segment.high - end, 0);
	segment.free += hole;
	segment.largest = Math.max(segment.largest, hole);
}

function sortSegments() {
	const held = (segment) => segment.blocks.length ? segment.free : -1;
	const orders = { held: (a, b) => held(b) - held(a) || b.high - b.low - (a.high - a.low), size: (a, b) => b.high - b.low - (a.high - a.low), address: (a, b) => a.low - b.low };
	segments.sort(orders[$("order").value]);
	const box = $("segments"), canvas = box.querySelector("canvas");
	const all = segments.length * ROW + 4;
	box.style.height = Math.min(all, 420) + "px";
	box.querySelector("div").style.height = Math.max(all - Math.min(all, 420), 0) + "px";
	canvas.style.height = Math.min(all, 420) + "px";
	box.scrollTop = 0;
	drawSegments();
}

function drawSegments() {
	if (!device || !device.hasAddresses) return;
	const box = $("segments"), canvas = box.querySelector("canvas"), ratio = Math.min(devicePixelRatio || 1, 2), look = theme();
	const w = box.clientWidth, h = Math.min(segments.length * ROW + 4, 420), context = canvas.getContext("2d"), kind = $("color").value;
	canvas.width = w * ratio;
	canvas.height = h * ratio;
	canvas.style.width = w + "px";
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.font = "11px system-ui, sans-serif";
	context.textBaseline = "middle";
	const left = w < 560 ? 96 : 190, width = w - left - 6, first = Math.floor(box.scrollTop / ROW);
	segmentHits = [];
	for (let s = first; s < segments.length && (s - first) * ROW < h + ROW; s++) {
		const segment = segments[s], y = s * ROW - box.scrollTop + 3, scale = width / (segment.high - segment.low);
		context.fillStyle = look.quiet;
		context.textAlign = "right";
		context.fillText(size(segment.high - segment.low) + (w < 560 ? "" : ", " + Math.round(100 * (1 - segment.free / (segment.high - segment.low))) + " % live" + (segment.stream ? ", stream " + words.streams[segment.stream] : "")), left - 8, y + (ROW - 6) / 2, left - 10);
		context.fillStyle = hatch(context, look);
		context.fillRect(left, y, width, ROW - 6);
		for (const life of segment.blocks) {
			const x = left + (device.addresses[device.address[life]] - segment.low) * scale, span = Math.max(device.sizesRounded[device.size[life]] * scale, 1.5);
			const value = groups[groupOfColor[kind]].of(life), faint = chosen !== null && chosen.of(life) !== chosen.value;
			context.globalAlpha = faint ? .25 : 1;
			context.fillStyle = cssColor(kind, value);
			context.fillRect(x, y, Math.min(span, left + width - x), ROW - 6);
			if (span > 4) { context.fillStyle = look.card; context.globalAlpha = .5; context.fillRect(x + span - .75, y, .75, ROW - 6); }
			context.globalAlpha = 1;
			if (life === pinned) { context.strokeStyle = look.text; context.lineWidth = 2; context.strokeRect(x, y, span, ROW - 6); }
		}
		context.strokeStyle = look.line;
		context.lineWidth = 1;
		context.strokeRect(left + .5, y + .5, width - 1, ROW - 7);
		segmentHits.push({ segment: segment, y: y, left: left, scale: scale });
	}
}

function hatch(context, look) {
	const tile = document.createElement("canvas"), to = (color) => "rgb(" + (color & 255) + "," + (color >> 8 & 255) + "," + (color >> 16 & 255) + ")";
	tile.width = tile.height = 7;
	const paint = tile.getContext("2d");
	paint.fillStyle = to(look.hole);
	paint.fillRect(0, 0, 7, 7);
	paint.fillStyle = to(look.holeLine);
	for (let i = 0; i < 7; i++) paint.fillRect(i, (7 - i) % 7, 1, 1);
	return context.createPattern(tile, "repeat");
}

/* What keeps a segment from being given back: its live blocks by who asked for them. */
function segmentLines(segment) {
	const lines = [["b", size(segment.high - segment.low) + (segment.expandable ? " of an expandable segment" : " segment")], ["div", "at " + hex(segment.low) + ", stream " + words.streams[segment.stream] + ", reserved at " + instant(segment.begin)],
		["div", size(segment.free) + " free, the largest hole " + size(segment.largest)]];
	const pins = new Map();
	for (const life of segment.blocks) {
		const key = holderOf(life), pinsOf = pins.get(key) || { bytes: 0, blocks: 0 };
		pinsOf.bytes += bytesOf(life);
		pinsOf.blocks++;
		pins.set(key, pinsOf);
	}
	const list = Array.from(pins).sort((a, b) => b[1].bytes - a[1].bytes);
	lines.push(["div", list.length ? "held by " + count(segment.blocks.length) + (segment.blocks.length === 1 ? " block:" : " blocks:") : "nothing live: emptying the cache gives it back"]);
	for (const [key, sum] of list.slice(0, 5)) lines.push(["div", size(sum.bytes) + " in " + count(sum.blocks) + ": " + holderText(key)]);
	if (list.length > 5) lines.push(["div", count(list.length - 5) + " more"]);
	return lines;
}

function lifeLines(life) {
	const lines = lifeFacts(life).map(([name, text], i) => i ? ["div", name + ": " + text] : ["b", text]);
	const stack = NeapData.stackLines(names, device.stack[life]);
	if (stack.length > 1) lines.push(["div", count(stack.length) + " frames; a click shows them"]);
	return lines;
}

function showTip(lines, x, y) {
	const tip = $("tip");
	tip.hidden = !lines;
	if (!lines) return;
	tip.textContent = "";
	for (const [tag, text] of lines) tip.append(element(tag, text));
	const box = tip.getBoundingClientRect();
	tip.style.left = Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16) + "px";
	tip.style.top = Math.max(4, Math.min(y + 16, innerHeight - box.height - 4)) + "px";
}

function hideTip() { hovered = -1; showTip(null); }
