// What surrounds the script of a function: evaluated before it, in a context of its own. It takes the built-ins that it
// needs before the script can replace them. The value of this file is a function that takes the script's `main` and
// returns one that loads a batch (given a text), computes its next piece (given true), or tells which of its items is
// being computed (given nothing).
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { keys, defineProperty, setPrototypeOf } = Object;
  const { floor, abs } = Math;
  const { apply, construct } = Reflect;
  const String_ = String;
  const Native = Date;
  const now = Date.now;
  const PIECE_MS = 200;
  const DEEPEST = 128;
  const DATE = "\u0000date";

  // What a result cannot be; the text is the whole message.
  class Refused extends Error {}

  // Local time is UTC, on every machine, and what a locale decides is as in en-US -----------------------------------

  const dates = Native.prototype;
  const hidden = (owner, name, value) =>
    defineProperty(owner, name, { value, writable: true, configurable: true, enumerable: false });
  const two = (number) => (number < 10 ? "0" : "") + number;
  const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  for (const part of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    hidden(dates, `get${part}`, dates[`getUTC${part}`]);
    hidden(dates, `set${part}`, dates[`setUTC${part}`]);
  }
  hidden(dates, "getDay", dates.getUTCDay);
  const { getUTCFullYear, getUTCMonth, getUTCDate, getUTCDay, getUTCHours, getUTCMinutes, getUTCSeconds, getTime } =
    dates;
  const of = (method, date) => apply(method, date, []);
  const year = (date) => {
    const value = of(getUTCFullYear, date);
    const digits = String_(abs(value));
    return (value < 0 ? "-00" : "") + (digits.length < 4 ? "0000".slice(digits.length) : "") + digits;
  };
  const day = (date) =>
    `${DAYS[of(getUTCDay, date)]} ${MONTHS[of(getUTCMonth, date)]} ${two(of(getUTCDate, date))} ${year(date)}`;
  const time = (date) =>
    `${two(of(getUTCHours, date))}:${two(of(getUTCMinutes, date))}:${two(of(getUTCSeconds, date))}` +
    " GMT+0000 (Coordinated Universal Time)";
  const shortDay = (date) => `${of(getUTCMonth, date) + 1}/${of(getUTCDate, date)}/${of(getUTCFullYear, date)}`;
  const shortTime = (date) => {
    const hour = of(getUTCHours, date);
    const rest = `${two(of(getUTCMinutes, date))}:${two(of(getUTCSeconds, date))}`;
    return `${hour % 12 === 0 ? 12 : hour % 12}:${rest} ${hour < 12 ? "AM" : "PM"}`;
  };
  const valid = (make) =>
    function () {
      const at = of(getTime, this);
      return at !== at ? "Invalid Date" : make(this);
    };
  const american = (name, make) =>
    function (locale, options) {
      if ((locale !== undefined && locale !== "en-US") || options !== undefined) {
        throw new RangeError(`${name} writes en-US without options only: there are no other locales here`);
      }
      return make.call(this);
    };
  hidden(dates, "getTimezoneOffset", function () {
    return of(getTime, this) * 0;
  });
  hidden(dates, "getYear", function () {
    return of(getUTCFullYear, this) - 1900;
  });
  hidden(dates, "toString", valid((date) => `${day(date)} ${time(date)}`));
  hidden(dates, "toDateString", valid(day));
  hidden(dates, "toTimeString", valid(time));
  const both = valid((date) => `${shortDay(date)}, ${shortTime(date)}`);
  hidden(dates, "toLocaleString", american("toLocaleString", both));
  hidden(dates, "toLocaleDateString", american("toLocaleDateString", valid(shortDay)));
  hidden(dates, "toLocaleTimeString", american("toLocaleTimeString", valid(shortTime)));
  const numberText = function () {
    const value = +this;
    if (value - value !== 0) {
      return value !== value ? "NaN" : value < 0 ? "-∞" : "∞";
    }
    const fixed = abs(value) < 1e21 ? abs(value).toFixed(3).replace(/\.?0+$/, "") : BigInt(abs(value)).toString();
    const [whole, fraction] = fixed.split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return (value < 0 ? "-" : "") + grouped + (fraction ? `.${fraction}` : "");
  };
  hidden(Number.prototype, "toLocaleString", american("toLocaleString", numberText));

  const zoned = /(?:Z|GMT|UTC?|[ECMP][SD]T|(?:GMT|UTC?)?[+-]\d{2}:?\d{2})\s*(?:\([^)]*\))?\s*$/i;
  const isoDay = /^\s*[+-]?\d{4,6}(?:-\d{2}){0,2}\s*$/;
  const isoTime = /^\s*[+-]?\d{4,6}(?:-\d{2}){0,2}T[\d:.,]+\s*$/;
  const nativeParse = Native.parse;
  const utc = Native.UTC;
  const inUtc = (text) => {
    const written = String_(text);
    if (isoDay.test(written) || zoned.test(written)) {
      return nativeParse(written);
    }
    return nativeParse(isoTime.test(written) ? `${written.trim()}Z` : `${written} GMT`);
  };
  const Utc = function Date(...parts) {
    if (new.target === undefined) {
      return dates.toString.call(new Native());
    }
    let args = parts;
    if (parts.length > 1) {
      args = [utc(...parts)];
    } else if (parts.length === 1 && !(parts[0] instanceof Native)) {
      const value = parts[0];
      const plain = typeof value === "object" && value !== null ? value.valueOf() : value;
      args = [typeof plain === "string" ? inUtc(plain) : plain];
    }
    return construct(Native, args, new.target);
  };
  defineProperty(Utc, "length", { value: 7 });
  defineProperty(Utc, "prototype", { value: dates, writable: false });
  hidden(Utc, "now", now);
  hidden(Utc, "UTC", utc);
  hidden(Utc, "parse", inUtc);
  hidden(dates, "constructor", Utc);
  hidden(globalThis, "Date", Utc);

  // Values in and out ---------------------------------------------------------------------------------------------

  const objects = Object.prototype;
  const { hasOwnProperty } = objects;
  const revived = (value) => {
    if (typeof value !== "object" || value === null) {
      return value;
    }
    if (isArray(value)) {
      for (let i = 0; i < value.length; i++) {
        value[i] = revived(value[i]);
      }
      return value;
    }
    if (apply(hasOwnProperty, value, [DATE])) {
      return new Native(value[DATE]);
    }
    const names = keys(value);
    for (let i = 0; i < names.length; i++) {
      value[names[i]] = revived(value[names[i]]);
    }
    return value;
  };

  // A script may change the prototypes of objects and arrays. What is made here inherits nothing that it could change:
  // no setter of an index, no `toJSON`, no attribute of a descriptor.
  const put = (owner, name, value) =>
    defineProperty(owner, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  const list = () => setPrototypeOf([], null);
  const push = (owner, value) => put(owner, owner.length, value);
  const Made = Error;
  const MadePromise = Promise;
  const [MadeNumber, MadeString, MadeBoolean] = [Number, String, Boolean];

  let marked = false; // whether the value has a date inside
  let large = false; // whether the number is whole, and its shortest text, which JSON has, is another whole number

  const unusual = (value, depth) => {
    if (value === null) {
      return null;
    }
    if (depth > DEEPEST) {
      throw new Refused("the result is nested too deeply, or contains itself");
    }
    if (isArray(value)) {
      const made = list();
      for (let i = 0; i < value.length; i++) {
        put(made, i, out(value[i], depth + 1));
      }
      return made;
    }
    if (value instanceof Native) {
      const at = of(getTime, value);
      if (at !== at) {
        throw new Refused("the result is an invalid Date");
      }
      marked = true;
      return { __proto__: null, [DATE]: at };
    }
    if (value instanceof Made) {
      throw new Refused(`the result is an error object: ${String_(value)}`);
    }
    if (value instanceof MadePromise) {
      throw new Refused("the result is a Promise: a function cannot be async");
    }
    if (value instanceof MadeNumber || value instanceof MadeString || value instanceof MadeBoolean) {
      return out(value.valueOf(), depth);
    }
    const made = { __proto__: null };
    const names = keys(value);
    for (let i = 0; i < names.length; i++) {
      put(made, names[i], out(value[names[i]], depth + 1));
    }
    return made;
  };

  const out = (value, depth) => {
    switch (typeof value) {
      case "number":
        if (value - value !== 0) {
          throw new Refused(`the result is ${value}, which is no number of the query language`);
        }
        if (value > 9007199254740992 || value < -9007199254740992) {
          large = true;
          if (depth > 0) {
            marked = true;
            return { __proto__: null, [DATE]: null, value: String_(value) };
          }
        }
        return value;
      case "string":
      case "boolean":
        return value;
      case "undefined":
        return null;
      case "object":
        return unusual(value, depth);
      default:
        throw new Refused(`the result is a ${typeof value}, which is no value of the query language`);
    }
  };

  const wording = (error) => {
    try {
      if (error instanceof Refused) {
        return error.message;
      }
      if (error instanceof Error) {
        // This file's own lines have six digits: see isolate.py.
        const line = /<input>:(\d{1,5}):/.exec(error.stack ?? "");
        return `${error.name}: ${error.message}${line === null ? "" : ` (line ${line[1]})`}`;
      }
      return `it threw ${String_(error)}`;
    } catch {
      return "it threw a value that cannot be shown";
    }
  };

  // Batches ---------------------------------------------------------------------------------------------------------

  return (main, aggregate) => {
    let request;
    let item = 0;
    let row = 0;
    let group;

    const load = (text) => {
      request = parse(text);
      item = row = 0;
      group = undefined;
      const { columns, dates: ofDates } = request;
      for (let i = 0; request.nested && i < columns.length; i++) {
        revived(columns[i]);
      }
      for (let d = 0; d < ofDates.length; d++) {
        const column = columns[ofDates[d]];
        for (let i = 0; i < column.length; i++) {
          column[i] = column[i] === null ? null : new Native(column[i]);
        }
      }
    };

    const applied = (columns) => {
      const args = list();
      for (let i = 0; i < columns.length; i++) {
        push(args, columns[i][item]);
      }
      return apply(main, undefined, args);
    };

    // Returns true once the group is complete, false if there was no time left.
    const accumulated = (until) => {
      const values = request.columns[0];
      const times = request.columns[1];
      if (group === undefined) {
        group = new main();
        if (typeof group.init === "function") {
          group.init();
        }
        row = request.starts[item];
      }
      const end = request.starts[item + 1];
      while (row < end) {
        group.accumulate(values[row], times[row]);
        row++;
        if (row % 64 === 0 && now() > until) {
          return false;
        }
      }
      return true;
    };

    const next = () => {
      const until = now() + PIECE_MS;
      const { columns, count } = request;
      const values = list();
      const failures = list();
      const markedItems = list();
      const largeItems = list();
      const first = columns[0];
      const second = columns[1];
      const width = columns.length;
      const from = item;
      for (; item < count; item++) {
        let value = null;
        try {
          if (aggregate) {
            if (!accumulated(until)) {
              break;
            }
            value = group.computeResult();
          } else {
            value =
              width === 1 ? main(first[item]) : width === 2 ? main(first[item], second[item]) : applied(columns);
          }
          if (typeof value !== "string") {
            marked = large = false;
            value = out(value, 0);
            if (marked) {
              push(markedItems, item - from);
            } else if (large) {
              push(largeItems, item - from);
            }
          }
        } catch (error) {
          value = null;
          const failure = list();
          push(failure, item - from);
          push(failure, wording(error));
          push(failures, failure);
          if (error === null || (error instanceof InternalError && error.message === "out of memory")) {
            // What the script has kept is given up with the context. Without memory for an error, null is thrown.
            throw error;
          }
        }
        group = undefined;
        values[values.length] = value;
        if (item % 16 === 15 && now() > until) {
          item++;
          break;
        }
      }
      const piece = list();
      push(piece, item);
      push(piece, values);
      push(piece, failures);
      push(piece, markedItems);
      push(piece, largeItems);
      return stringify(piece);
    };

    return (given) => (given === undefined ? item : given === true ? next() : load(given));
  };
})();
