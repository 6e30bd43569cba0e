/* Mouse, keys and controls; and the beginning. */
"use strict";

/* ---- mouse and keys ---- */

/* What is under the pointer. The picture may still be that of the view before. */
function hit(panel, event) {
	const box = panel.box.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, drawn = panel.drawn;
	const inside = x >= panel.left && x < panel.left + panel.width && y >= 0 && y < panel.height;
	const found = { x: x, y: y, inside: inside, item: 0, event: eventAt(xAt(panel, x)) };
	if (!inside || !panel.pick || !drawn || drawn.byTime !== view.byTime) return found;
	const [low, high] = panel === panels.stack ? ["y0", "y1"] : ["m0", "m1"], w = panel.raster.width, h = panel.raster.height;
	const level = view[low] + (panel.height - y) / panel.height * (view[high] - view[low]);
	const column = Math.floor((xAt(panel, x) - drawn.x0) / (drawn.x1 - drawn.x0) * w + 1e-6);
	const row = Math.ceil((level - drawn[low]) / (drawn[high] - drawn[low]) * h - 1e-6) - 1;
	if (column < 0 || column >= w || row < 0 || row >= h) return found;
	found.item = panel.pick[column * h + row];
	found.event = device.from + panels.stack.instants[column];
	return found;
}

function holeLines(panel, found) {
	const pieces = device.pieces, p = panels.map.pieces.id[-1 - found.item];
	const at = found.event;
	const segment = { low: pieces.address[p], high: pieces.address[p] + pieces.size[p], expandable: pieces.expandable[p] === 1, stream: pieces.stream[p], begin: pieces.begin[p], blocks: [] };
	for (let i = 0; i < device.count && device.begin[i] <= at; i++) {
		const address = device.addresses[device.address[i]];
		if (device.end[i] > at && address >= segment.low && address < segment.high) segment.blocks.push(i);
	}
	segment.blocks.sort((a, b) => device.addresses[device.address[a]] - device.addresses[device.address[b]]);
	measure(segment);
	return segmentLines(segment);
}

function onMove(panel, event) {
	const low = panel === panels.stack ? "y0" : "m0", high = panel === panels.stack ? "y1" : "m1";
	if (drag && drag.panel === panel) {
		const box = panel.box.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
		drag.moved = drag.moved || Math.abs(x - drag.from) + Math.abs(y - drag.fromY) > 4;
		if (drag.marking) { drag.now = Math.min(Math.max(x, panel.left), panel.left + panel.width); changed(); return; }
		if (!drag.moved) return;
		panel.box.classList.add("dragging");
		const dx = (x - drag.from) / panel.width * (view.x1 - view.x0), dy = (y - drag.fromY) / panel.height * (view[high] - view[low]);
		view.x1 = drag.view.x1 - dx; view.x0 = drag.view.x0 - dx;
		view[low] = drag.view[low] + dy; view[high] = drag.view[high] + dy;
		showTip(null);
		changed();
		return;
	}
	const found = hit(panel, event), life = found.item > 0 ? panels.stack.shown.id[found.item - 1] : -1;
	if (life !== hovered) { hovered = life; changed(); }
	showTip(life >= 0 ? lifeLines(life) : found.item < 0 ? holeLines(panel, found) : null, event.clientX, event.clientY);
}

function onUp(panel, event) {
	const was = drag;
	drag = null;
	panel.box.classList.remove("dragging");
	if (!was || was.panel !== panel) return;
	if (was.marking && Math.abs(was.now - was.from) > 4) {
		const a = xAt(panel, Math.min(was.from, was.now)), b = xAt(panel, Math.max(was.from, was.now));
		view.x0 = a; view.x1 = b;
		changed();
	} else if (!was.moved) {
		const found = hit(panel, event);
		if (!found.inside) return;
		moveCursor(found.event);
		if (found.item > 0) pin(panels.stack.shown.id[found.item - 1]);
	}
	changed();
}

function listen(panel, low, high) {
	const box = panel.box;
	box.addEventListener("pointermove", (event) => onMove(panel, event));
	box.addEventListener("pointerleave", () => { hideTip(); changed(); });
	box.addEventListener("pointerdown", (event) => {
		if (event.button !== 0 || !ready) return;
		const found = hit(panel, event);
		if (!found.inside) return;
		box.setPointerCapture(event.pointerId);
		drag = { panel: panel, from: found.x, fromY: found.y, now: found.x, view: { ...view }, marking: event.shiftKey, moved: false };
	});
	box.addEventListener("pointerup", (event) => onUp(panel, event));
	box.addEventListener("pointercancel", () => { drag = null; box.classList.remove("dragging"); changed(); });
	box.addEventListener("dblclick", (event) => {
		const found = hit(panel, event), life = found.item > 0 ? panels.stack.shown.id[found.item - 1] : -1;
		if (life >= 0) zoomTo(life);
	});
	box.addEventListener("wheel", (event) => {
		if (!ready) return;
		event.preventDefault();
		hideTip();
		const found = hit(panel, event), turned = event.deltaY || event.deltaX, factor = Math.exp(Math.min(Math.max(turned, -240), 240) * (event.deltaMode ? .05 : .0022));
		if (event.shiftKey) zoom(low, high, view[low] + (1 - found.y / panel.height) * (view[high] - view[low]), factor);
		else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = event.deltaX / panel.width * (view.x1 - view.x0); view.x0 += by; view.x1 += by; changed(); }
		else zoom("x0", "x1", xAt(panel, Math.min(Math.max(found.x, panel.left), panel.left + panel.width)), factor);
	}, { passive: false });
	box.addEventListener("keydown", onKey);
}

function zoomTo(life) {
	const begin = Math.max(device.begin[life], device.from), end = Math.min(device.end[life], device.to - 1);
	const a = xOf(begin), b = Math.max(xOf(end), a + 1), margin = (b - a) * .15 + 1;
	view.x0 = a - margin;
	view.x1 = b + margin;
	changed();
}

/* The next live allocation above or below the pinned one at the cursor. */
function neighbour(up) {
	let below = -1, found = -1;
	for (let i = 0; i < device.count && device.begin[i] <= cursor; i++) {
		if (device.end[i] <= cursor) continue;
		if (i < pinned) below = i;
		else if (i > pinned) { found = i; break; }
	}
	if (pinned >= 0 && !liveAt(pinned, cursor)) return found >= 0 ? found : below;
	return up ? (found >= 0 ? found : pinned) : (below >= 0 ? below : pinned);
}

function keepCursorSeen() {
	const x = xOf(cursor), span = view.x1 - view.x0;
	if (x < view.x0 || x > view.x1) { view.x0 = x - span / 2; view.x1 = x + span / 2; }
}

function onKey(event) {
	if (!ready || event.ctrlKey || event.altKey || event.metaKey) return;
	const span = view.x1 - view.x0, middle = xOf(cursor) >= view.x0 && xOf(cursor) <= view.x1 ? xOf(cursor) : view.x0 + span / 2;
	const move = (by) => { view.x0 += by; view.x1 += by; changed(); };
	const keys = {
		ArrowLeft: () => move(event.shiftKey ? -span : -span / 8), ArrowRight: () => move(event.shiftKey ? span : span / 8),
		"+": () => zoom("x0", "x1", middle, .6), "=": () => zoom("x0", "x1", middle, .6), "-": () => zoom("x0", "x1", middle, 1 / .6),
		ArrowUp: () => pin(neighbour(true)), ArrowDown: () => pin(neighbour(false)),
		",": () => { moveCursor(cursor - 1); keepCursorSeen(); }, ".": () => { moveCursor(cursor + 1); keepCursorSeen(); },
		Home: () => move(-view.x0), End: () => move(xAll() - view.x1), f: () => setFit(!fit),
		"0": reset, Escape: reset
	};
	if (!Object.hasOwn(keys, event.key)) return;
	event.preventDefault();
	hideTip();
	keys[event.key]();
}

function reset() { setFit(false); showAll(); choose(null); changed(); }

function setFit(on) {
	fit = on;
	$("fit").setAttribute("aria-pressed", String(on));
	if (!on) { view.y0 = 0; view.y1 = device.top; }
	changed();
}

function listenOverview() {
	const box = $("overview"), go = (event) => {
		const part = (event.clientX - box.getBoundingClientRect().left) / box.clientWidth, span = view.x1 - view.x0;
		const at = view.byTime ? device.times[Math.min(Math.max(Math.floor(part * device.length), 0), device.length - 1)] : part * device.length;
		view.x0 = at - span / 2;
		view.x1 = at + span / 2;
		changed();
	};
	box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); go(event); });
	box.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); });
}

function listenSegments() {
	const box = $("segments"), find = (event) => {
		const area = box.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
		const row = segmentHits.find((item) => y >= item.y && y < item.y + ROW);
		if (!row || x < row.left - 190) return null;
		const address = row.segment.low + (x - row.left) / row.scale, near = 2 / row.scale;
		let best = -1;
		for (const life of row.segment.blocks) {
			const low = device.addresses[device.address[life]], high = low + device.sizesRounded[device.size[life]];
			if (address >= low && address < high) { best = life; break; }
			if (address >= low - near && address < high + near) best = life;
		}
		return { segment: row.segment, life: x >= row.left ? best : -1 };
	};
	box.addEventListener("pointermove", (event) => {
		const found = find(event);
		showTip(found && (found.life >= 0 ? lifeLines(found.life) : segmentLines(found.segment)), event.clientX, event.clientY);
		const life = found ? found.life : -1;
		if (life !== hovered) { hovered = life; changed(); }
	});
	box.addEventListener("pointerleave", () => { hideTip(); changed(); });
	box.addEventListener("click", (event) => { const found = find(event); if (found && found.life >= 0) pin(found.life); });
	box.addEventListener("scroll", drawSegments);
}

function listenControls() {
	$("axis").addEventListener("change", () => {
		const a = eventAt(view.x0), b = eventAt(view.x1 - 1e-9);
		view.byTime = $("axis").value === "time";
		view.x0 = xOf(a);
		view.x1 = b + 1 >= device.to ? xAll() : xOf(b + 1);
		changed();
	});
	$("color").addEventListener("change", () => { fillLegend(); drawSegments(); redraw(); });
	$("closer").addEventListener("click", () => zoom("x0", "x1", (view.x0 + view.x1) / 2, .6));
	$("wider").addEventListener("click", () => zoom("x0", "x1", (view.x0 + view.x1) / 2, 1 / .6));
	$("fit").addEventListener("click", () => setFit(!fit));
	$("reset").addEventListener("click", reset);
	$("by").addEventListener("change", fillHeld);
	$("order").addEventListener("change", sortSegments);
	$("unselect").addEventListener("click", () => choose(null));
	$("topeak").addEventListener("click", () => { toPeak(); keepCursorSeen(); changed(); });
	$("tofailure").addEventListener("click", () => { toFailure(); keepCursorSeen(); changed(); });
	$("device").addEventListener("change", () => show(Number($("device").value)));
	addEventListener("resize", () => { redraw(); drawSegments(); });
	dark.addEventListener("change", () => { redraw(); drawSegments(); fillFlame(); });
}

/* Each head of such a table becomes a button that sorts by its column; once more, the other way round. */
function listenTables() {
	const value = (row, i) => {
		const cell = row.cells[i], text = cell.dataset.value || cell.textContent;
		return text !== "" && !isNaN(text) ? Number(text) : text;
	};
	for (const table of document.querySelectorAll("table.sorts"))
		table.querySelectorAll("th").forEach((head, i) => {
			const button = element("button", head.textContent);
			head.replaceChildren(button);
			button.addEventListener("click", () => {
				const down = head.getAttribute("aria-sort") !== "descending", body = table.tBodies[0];
				for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
				head.setAttribute("aria-sort", down ? "descending" : "ascending");
				const rows = Array.from(body.rows).sort((a, b) => {
					const x = value(a, i), y = value(b, i);
					return (down ? -1 : 1) * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
				});
				body.append(...rows);
			});
		});
}

function toPeak() { moveCursor(Math.max(device.facts.requested[1], device.from)); }

function toFailure() { moveCursor(device.facts.failure[1]); }

/* ---- beginning ---- */

const parse = (id) => JSON.parse($(id).textContent);

/* What memory is for tells little where most of it is unknown: then who asked for it. */
function chooseColor() {
	device.purposes = new Set(Array.from(device.category, (category) => category >> 2).sort((a, b) => a - b));
	device.ranks = new Map(sums(groups.holder).list.slice(0, 24).map((sum, rank) => [sum.key, rank]));
	const held = sums(groups.category), unknown = held.list.find((sum) => sum.key === words.categories.length - 1);
	if (unknown && unknown.bytes > held.total / 2) $("color").value = "site";
	fillLegend();
}

/* The picture is made from the allocations, the figures by the command: they have to agree. */
function check() {
	for (const [name, levels] of [["requested", device.requested], ["rounded", device.rounded], ["reserved", device.reserved]]) {
		const [bytes, event] = device.facts[name];
		if (event < device.from || event >= device.to || (name === "reserved" && !device.reservedKnown)) continue;
		if (levels.values[event - device.from] !== bytes) return name + " at event " + event + " is " + levels.values[event - device.from] + " bytes in the picture, " + bytes + " in the figures";
	}
	return "";
}

async function show(number) {
	const section = document.querySelector('.device[data-device="' + number + '"]'), place = section.querySelector(".place"), state = place.querySelector(".state");
	ready = false;
	for (const other of document.querySelectorAll(".device")) other.classList.toggle("chosen", other === section);
	$("chart").hidden = true;
	const old = $("overview").querySelector(".coarse");
	if (old && device) document.querySelector('.device[data-device="' + device.facts.device + '"] .place').append(old);
	try {
		if (!devices[number]) {
			state.textContent = "Reading " + count(facts[number].to - facts[number].from) + " events ...";
			await NeapData.pause();
			names = names || NeapData.readNames(await NeapData.unpack("names"));
			devices[number] = await NeapData.readDevice(facts[number], words.source !== 1);
		}
	} catch (error) {
		state.textContent = "The page's data cannot be read (" + error.message + "): is the file whole?";
		state.classList.add("bad");
		throw error;
	}
	device = devices[number];
	device.top = topLevel();
	device.stepsBefore = facts[number].stepsBefore;
	state.textContent = device.length ? check() : "The trace has no events here: there is only the state at its end.";
	state.classList.toggle("bad", state.textContent !== "");
	const coarse = place.querySelector(".coarse");
	if (coarse) $("overview").prepend(coarse);
	$("overview").hidden = !coarse;
	place.append($("chart"));
	$("chart").hidden = false;
	$("mapcard").hidden = $("segmentscard").hidden = !device.hasAddresses;
	$("nomap").hidden = device.hasAddresses;
	$("marks").hidden = !device.marks.kind.some((kind) => kind < 3) && !device.failures.event.length && facts[number].failure[1] < 0;
	$("steps").hidden = !device.steps.length;
	$("ranges").hidden = !device.marks.kind.some((kind) => kind === 1 || kind === 2);
	$("axis").disabled = device.times === null;
	if (device.times === null) $("axis").value = "event";
	hovered = pinned = -1;
	chosen = null;
	view = null;
	showAll();
	view.byTime = $("axis").value === "time";
	view.x1 = xAll();
	panels.stack.drawn = panels.map.drawn = null;
	ready = true;
	fillDetails();
	device.ranks = device.ranks || new Map();
	device.purposes = device.purposes || [];
	$("tofailure").hidden = device.facts.failure[1] < device.from || device.facts.failure[1] >= device.to;
	if ($("tofailure").hidden) toPeak(); else toFailure();
	chooseColor();
	draw();
}

/* What stands in the page is on the screen; a page that is not to be seen paints nothing. */
function painted() {
	return new Promise((go) => {
		requestAnimationFrame(() => setTimeout(go, 0));
		setTimeout(go, 500);
	});
}

async function begin() {
	document.documentElement.classList.add("scripted");
	words = parse("words");
	for (const id of ["stack", "map"])
		panels[id] = { box: $(id), raster: $(id).querySelector(".raster"), lines: $(id).querySelector(".lines"), drawn: null, asked: -1e9 };
	const sections = Array.from(document.querySelectorAll(".device"));
	for (const section of sections) {
		const number = Number(section.dataset.device), option = element("option", String(number));
		facts[number] = parse("facts-" + number);
		option.value = String(number);
		$("device").append(option);
	}
	$("choose").hidden = sections.length < 2;
	listen(panels.stack, "y0", "y1");
	listen(panels.map, "m0", "m1");
	listenOverview();
	listenSegments();
	listenControls();
	listenTables();
	await painted();
	await show(Number(sections[0].dataset.device));
	performance.mark("neap-ready");
}

/* For scripts that drive the page: when it is ready, and where on the screen an instant and a level are. */
window.neapPage = {
	begun: new Promise((done, fail) => {
		const go = () => begin().then(done, fail);
		if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", go); else go();
	}),
	place(event, bytes) {
		const panel = panels.stack, box = panel.box.getBoundingClientRect();
		return [box.left + pixelOf(panel, xOf(event) + (view.byTime ? 0 : .5)), box.top + panel.height - (bytes - view.y0) / (view.y1 - view.y0) * panel.height];
	},
	placeOfAddress(event, address) {
		const panel = panels.map, box = panel.box.getBoundingClientRect(), place = NeapData.placeOf(device, address);
		return [box.left + pixelOf(panel, xOf(event) + (view.byTime ? 0 : .5)), box.top + panel.height - (place - view.m0) / (view.m1 - view.m0) * panel.height];
	},
	/* Whether what is drawn is what is to be seen. */
	settled() { return ready && !frame && JSON.stringify(panels.stack.drawn) === JSON.stringify(view); },
	state() { return { view: { ...view }, ready: ready, cursor: cursor, pinned: pinned, slow: slow, lives: device ? device.count : 0 }; }
};
