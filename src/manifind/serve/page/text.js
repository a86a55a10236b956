// Names that others chose, made safe to show: the same rules as in manifind/reports/text.py.

const UNSEEN = new RegExp(
  "[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\u034F\\u115F\\u1160\\u17B4\\u17B5\\u180B-\\u180F\\u2065\\u2800\\u3164" +
  "\\uFE00-\\uFE0F\\uFFA0\\uFFF0-\\uFFF8\\u{E0000}-\\u{E0FFF}]", "gu");
const [NON_JOINER, JOINER, AS_EMOJI] = ["\u200C", "\u200D", "\uFE0F"];

// Text with every character that nobody can see written out. Joiners stay where a script or an emoji needs them.
export function visible(text) {
  return String(text).replace(UNSEEN, (here, at, whole) => {
    if (belongs([...whole.slice(Math.max(0, at - 2), at)].at(-1) ?? "", here)) return here;
    const code = here.codePointAt(0);
    return code <= 0xffff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

// Whether a joiner stands after a letter of a script that joins (Arabic to Sinhala), or within an emoji.
function belongs(before, here) {
  if (here !== NON_JOINER && here !== JOINER && here !== AS_EMOJI) return false;
  if (here !== AS_EMOJI && /[\u0620-\u0DFF]/u.test(before) && !/[\p{Cc}\p{Cf}]/u.test(before)) return true;
  return here !== NON_JOINER && /[\p{So}\p{Sk}\uFE0F]/u.test(before);
}
