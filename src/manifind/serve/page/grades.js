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

// A photo that the query was taken from matches itself: it is shown apart, and counted nowhere.
export const isOwn = ({ key, duplicates = [] }, views) =>
  views.some((view) => view.key != null && (view.key === key || duplicates.includes(view.key)));

export const othersOf = ({ results }, views) => results.filter((one) => !isOwn(one, views));

// The place of each result among those that are counted.
export const placesOf = (answer, views) => new Map(othersOf(answer, views).map(({ key }, at) => [key, at + 1]));

// Whether the method has no cutoff, so that all results count alike.
const counts = ({ n_matches: matches }) => matches === null;

export const matchesOf = (answer, views) => othersOf(answer, views).filter((one) => counts(answer) || one.is_match);

// Whether no photo matches but the nearest are worth a look: all but those of an upload that resembles nothing. A query
// without texture cannot be verified, however much others resemble it.
export function isOpen(answer, views) {
  const others = othersOf(answer, views);
  if (!others.length || matchesOf(answer, views).length) return false;
  const { confidence } = answer;
  const textureless = answer.n_verified !== null && others.every((one) => one.verified === null);
  return others.length < answer.results.length || textureless || !confidence || confidence.similarity > confidence.null_similarity;
}

export function summary(answer, views) {
  if (isOpen(answer, views)) {
    return `Nothing certain${othersOf(answer, views).length < answer.results.length ? " besides your own photo" : ""}. The nearest, please judge:`;
  }
  const matches = matchesOf(answer, views);
  if (!matches.length) return answer.results.length && !othersOf(answer, views).length ? "Nothing besides your own photo" : "Nothing in this collection matches";
  const photos = counted(matches.length, "photo");
  if (counts(answer)) return photos;
  const sure = matches.filter((one) => gradeOf(one) === "verified").length;
  if (matches.length === 1) return sure ? "1 photo, sure" : "1 photo, not sure";
  if (!sure) return `${photos}, none of them sure`;
  if (sure === matches.length) return `${photos}, ${sure === 2 ? "both" : "all"} of them sure`;
  return `${photos}, ${sure} of them sure`;
}
