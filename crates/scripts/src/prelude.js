// The server-side API of scripts, on top of a few native functions. Evaluates to a function that sets up the globals and gives
// back the handles that the engine drives a script by; scripts never see those.
(function (call, accepts, log, settings) {
    "use strict";
    const queue = [];
    const headers = { request: new Map(), response: new Map() };
    const bodies = { request: settings.request, response: settings.response };
    const parse = JSON.parse, stringify = JSON.stringify, apply = Reflect.apply;

    // ---- Errors: `new Error(409, "text")` has a number, as scripts for the service expect.
    const NativeError = Error;
    function ScriptError(first, second) {
        const numbered = typeof first === "number" && arguments.length > 1;
        const error = new NativeError(numbered ? second : first);
        if (numbered) error.number = first;
        return error;
    }
    ScriptError.prototype = NativeError.prototype;
    NativeError.prototype.constructor = ScriptError;
    Object.defineProperty(ScriptError, "name", { value: "Error" });
    globalThis.Error = ScriptError;
    globalThis.ErrorCodes = Object.freeze({
        BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
        RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500,
    });

    // ---- The time is the server's.
    const NativeDate = Date;
    function ScriptDate(...parts) {
        if (!new.target) return new NativeDate(settings.now).toString();
        return parts.length ? Reflect.construct(NativeDate, parts, new.target) :
            Reflect.construct(NativeDate, [settings.now], new.target);
    }
    ScriptDate.prototype = NativeDate.prototype;
    NativeDate.prototype.constructor = ScriptDate;
    ScriptDate.UTC = NativeDate.UTC;
    ScriptDate.parse = NativeDate.parse;
    ScriptDate.now = () => settings.now;
    Object.defineProperty(ScriptDate, "name", { value: "Date" });
    globalThis.Date = ScriptDate;

    // ---- console.log, with %s, %d, %i, %f and %j.
    function format(first, ...rest) {
        const text = (value) => typeof value === "object" && value !== null ? stringify(value) : String(value);
        let out = text(first);
        if (typeof first === "string") {
            out = first.replace(/%([sdifj%])/g, (all, kind) => {
                if (kind === "%") return "%";
                if (!rest.length) return all;
                const value = rest.shift();
                if (kind === "j") return stringify(value);
                if (kind === "s") return text(value);
                return String(kind === "f" ? Number(value) : Math.trunc(Number(value)));
            });
        }
        return [out, ...rest.map(text)].join(" ");
    }
    globalThis.console = Object.freeze({ log: (...parts) => log(format(...parts)) });

    const later = (callback, ...parts) => queue.push(() => apply(callback, undefined, parts));

    // ---- Calls to the container. The work is done at once; callbacks come after the function that asked has returned.
    function ask(verb, link, body, options, callback, finish) {
        if (typeof options === "function") [options, callback] = [undefined, options];
        if (!accepts()) return false;
        const answer = parse(call(verb, String(link), body, stringify(options || {})));
        if (answer.error) {
            const error = new NativeError(answer.error.text);
            error.number = answer.error.number;
            error.body = answer.error.text;
            if (!callback) throw error;
            later(callback, error, undefined, {});
        } else if (finish || callback) {
            const info = { currentCollectionSizeInMB: settings.sizeMb, maxCollectionSizeInMB: 1e9 };
            if (answer.continuation !== undefined) info.continuation = answer.continuation;
            if (answer.notModified) info.notModified = true;
            if (finish) finish(answer.resource, info); else later(callback, undefined, answer.resource, info);
        }
        return true;
    }

    const text = (value) => typeof value === "string" ? value : stringify(value);

    // ---- The chained API: each link is a function of a page of documents.
    const property = (key) => (document) => Object(document)[key];
    const sorter = (by, sign) => (documents) => {
        const key = by === undefined ? (x) => x : by;
        return documents.map((document) => [key(document), document])
            .sort(([a], [b]) => a < b ? -sign : a > b ? sign : 0).map(([, document]) => document);
    };
    const links = {
        filter: (test) => (documents) => documents.filter((document) => test(document)),
        map: (change) => (documents) => documents.map((document) => change(document)).filter((x) => x !== undefined),
        pluck: (key) => (documents) => documents.map(property(key)).filter((x) => x !== undefined),
        flatten: (shallow) => (documents) => {
            const flat = (list) => list.flatMap((x) => Array.isArray(x) ? (shallow ? x : flat(x)) : [x]);
            return flat(documents);
        },
        sortBy: (by) => sorter(by, 1),
        sortByDescending: (by) => sorter(by, -1),
        unwind: (inner, result) => (documents) => documents.flatMap((document) => {
            const list = typeof inner === "function" ? inner(document) : property(inner)(document);
            const pair = result || ((outer, x) => [outer, x]);
            return (Array.isArray(list) ? list : []).map((x) => pair(document, x));
        }),
    };

    function runChain(steps, options, callback) {
        if (typeof options === "function") [options, callback] = [undefined, options];
        const accepted = ask("feed", self, "", options, callback, (documents, info) => {
            const rows = steps.reduce((rows, step) => step(rows), documents);
            if (callback) later(callback, undefined, rows, info); else bodies.response = rows;
        });
        return { isAccepted: accepted };
    }

    function chainFrom(steps) {
        const chain = {};
        for (const name of Object.keys(links)) chain[name] = (...parts) => chainFrom([...steps, links[name](...parts)]);
        chain.value = (options, callback) => runChain(steps, options, callback);
        return chain;
    }

    const self = settings.selfLink;
    const collection = {
        getSelfLink: () => settings.selfLink,
        getAltLink: () => settings.altLink,
        readDocument: (link, options, callback) => ask("read", link, "", options, callback),
        readDocuments: (link, options, callback) => ask("feed", link, "", options, callback),
        queryDocuments: (link, query, options, callback) =>
            ask("query", link, stringify(typeof query === "string" ? { query } : query), options, callback),
        createDocument: (link, body, options, callback) => ask("create", link, text(body), options, callback),
        upsertDocument: (link, body, options, callback) => ask("upsert", link, text(body), options, callback),
        replaceDocument: (link, body, options, callback) => ask("replace", link, text(body), options, callback),
        patchDocument: (link, body, options, callback) => ask("patch", link, text(body), options, callback),
        deleteDocument: (link, options, callback) => ask("delete", link, "", options, callback),
        chain: () => chainFrom([]),
        value: (options, callback) => runChain([], options, callback),
    };
    for (const name of Object.keys(links)) {
        // Called by itself a link takes its own argument, then options and callback; flatten and the sorts can do without one.
        collection[name] = (...parts) => {
            const own = parts.length && typeof parts[0] !== "object" ? [parts.shift()] : [];
            if (name === "unwind" && typeof parts[0] === "function") own.push(parts.shift());
            return runChain([links[name](...own)], parts[0], parts[1]);
        };
    }

    // ---- Request and response.
    function message(side, writable) {
        const check = () => { if (!writable) throw new ScriptError(403, "The " + side + " cannot be changed here."); };
        const isBody = (name) => String(name).toLowerCase() === "body";
        const append = (value) => {
            const before = bodies[side];
            bodies[side] = (before === undefined ? "" : text(before)) + text(value);
        };
        return {
            getBody: () => bodies[side],
            setBody: (body) => { check(); bodies[side] = body; },
            appendBody: (body) => { check(); append(body); },
            getValue: (name) => isBody(name) ? bodies[side] : headers[side].get(String(name)),
            setValue: (name, value) => {
                check();
                if (isBody(name)) bodies[side] = value; else headers[side].set(String(name), value);
            },
            appendValue: (name, value) => {
                check();
                if (isBody(name)) return append(value);
                const before = headers[side].get(String(name));
                headers[side].set(String(name), (before === undefined ? "" : before) + text(value));
            },
            getOperationType: () => settings.operation,
            getMaxResourceQuota: () => "documentsSize=10485760;",
            getResourceQuotaCurrentUsage: () => "documentsSize=" + settings.sizeMb * 1024 + ";",
        };
    }
    const request = message("request", settings.kind === "pre");
    const response = message("response", settings.kind !== "pre");
    let aborted;
    const context = {
        getCollection: () => collection,
        getRequest: () => request,
        getResponse: () => {
            if (settings.kind === "pre") throw new ScriptError(403, "A pre-trigger has no response.");
            return response;
        },
        abort: (error) => {
            aborted = { error };
            throw error;
        },
    };
    collection.request = request;
    if (settings.kind !== "pre") collection.response = response;
    if (settings.kind !== "function") {
        globalThis.getContext = () => context;
        globalThis.__ = collection;
    }

    // ---- The engine's handles.
    let rejected;
    return {
        start(body, parts) {
            const result = apply(body, undefined, parse(parts));
            if (result && typeof result.then === "function") {
                result.then(undefined, (error) => { rejected = { error }; });
            }
        },
        // Runs the next callback; says whether there was one.
        step() {
            if (aborted) throw aborted.error;
            if (rejected) throw rejected.error;
            if (!queue.length) return false;
            queue.shift()();
            return true;
        },
        body: (side) => bodies[side] === undefined ? undefined : stringify(bodies[side]),
        // Arguments and result are in arrays: an empty one stands for undefined.
        evaluate(body, parts) {
            const result = apply(body, undefined, parse(parts).map((part) => part[0]));
            return result === undefined ? "[]" : stringify([result]);
        },
        describe(error) {
            const known = error !== null && typeof error === "object";
            const number = known && Number.isInteger(error.number) ? error.number : 0;
            const name = known && error.name ? String(error.name) : "Error";
            const what = known && "message" in error ? name + ": " + error.message :
                known ? stringify(error) : String(error);
            return stringify({ number, text: what, stack: known && error.stack ? String(error.stack) : "" });
        },
    };
})
