// How sure a result is, in four grades, and what was found in one sentence.

import { counted } from "./dom.js";

// `mark` stands under a photo, `sign` on a small one; what is not likely has neither and is pale.
export const GRADES = {
  verified: {
    kind: "sure", mark: "✓ sure", sign: "✓", label: "sure",
    meaning: (one) => (one.inliers == null ? "Points of the query were found again in it, in the same arrangement"
      : `${counted(one.inliers, "point")} of the query ${one.inliers === 1 ? "was" : "were"} found again in it, in the same arrangement` +
        (one.mirrored ? ", mirrored" : "") +
        (one.expanded ? ". The search with the sure photos found it" : "")),
  },
  "shares a part": {
    kind: "part", mark: "◐ shares a part", sign: "◐", label: "shares a part",
    meaning: () => "A part of the query was found again in it; it may be another thing with the same part",
  },
  likely: {
    kind: "likely", mark: "~ likely", sign: "~", label: "likely",
    meaning: () => "It looks like the query and like photos that are sure; no points were found again",
  },
};

// The grade of a result; of a service that tells none, by what it verified.
export function gradeOf(one) {
  if (one.grade) return one.grade.replace(/[-_]/g, " ");
  if (one.verified) return "verified";
  return one.is_match ? "likely" : "not likely";
}

export function summary({ n_matches: matches, results }) {
  if (!results.length || matches === 0) return "Nothing in this collection matches";
  if (matches === null) return counted(results.length, "photo");
  const sure = results.filter((one) => gradeOf(one) === "verified").length;
  if (!sure) return `${counted(matches, "photo")}, ${matches === 1 ? "not sure" : "none of them sure"}`;
  if (sure >= matches) return matches === 1 ? "1 photo, sure" : `${counted(matches, "photo")}, all of them sure`;
  return `${counted(matches, "photo")}, ${sure} of them sure`;
}
