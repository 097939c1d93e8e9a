// A CloudFront function (runtime cloudfront-js-2.0) that makes a bucket with this index a package index.
// Attach it to both events, viewer request and viewer response; docs/serving.md says how.
//
// It answers as `invoke wheels.serve` does, but cannot look into the bucket: what a path means follows from its
// form alone. Where nothing lies, it may redirect once before the bucket answers 404.
//
// The runtime knows ECMAScript 5.1, const, let, arrow functions and template literals, and little more.

// The accelerator builds: the `variants` of pyproject.toml, each matched whole. Keep the two the same.
const VARIANTS = ['cu\\d{2,3}', 'rocm\\d*(?:\\.\\d+)*', 'xpu', 'npu', 'musa', 'cpu'];

const VIEW = /^(nightly|[0-9a-f]{40}|v(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?)$/;
const VARIANT = new RegExp('^(?:' + VARIANTS.join('|') + ')$');
const FILE = /^(index\.html|browse\.html|index\.json|metadata\.json)$|\.(whl|tar\.gz|metadata)$/;

const JSON_FORM = 'application/vnd.pypi.simple.v1+json';
const SIMPLE_HTML = 'application/vnd.pypi.simple.v1+html';
const HTML = 'text/html';
// What wins when a client wants several forms equally, last first: of those that it named, and of those it did not.
const NAMED = [HTML, SIMPLE_HTML, JSON_FORM];
const UNNAMED = [SIMPLE_HTML, JSON_FORM, HTML];

function handler(event) {
  const accept = acceptOf(event.request.headers);
  if (event.context.eventType === 'viewer-response') return describe(event.response, accept);
  return route(event.request, accept);
}

// Return the request for the bucket's object, or the answer.
function route(request, accept) {
  const segments = decode(request.uri);
  if (segments === null) return answer(400, 'Bad Request', {});
  const isFolder = request.uri.endsWith('/');
  if (segments.length === 0) return redirect(302, 'Found', '/browse.html');
  if (segments[0].startsWith('_')) return answer(404, 'Not Found', {});

  const depth = rootDepth(segments);
  const isJson = segments[depth] === 'json';
  const above = segments.slice(0, isJson ? depth + 1 : depth);
  const project = segments.slice(above.length);
  const last = segments[segments.length - 1];
  if (depth > 0 && project.length < 2 && (isFolder || !FILE.test(last))) {
    const normal = project.map(normalise);
    if (!isFolder || normal[0] !== project[0]) return redirect(301, 'Moved Permanently', folder(above.concat(normal)));
    if (!isJson && choose(accept, NAMED) === JSON_FORM) {
      return vary(redirect(302, 'Found', folder(above.concat('json', project))));
    }
  }

  let key = segments;
  if (isFolder) {
    const isJsonPage = segments.slice(-2).includes('json');
    if (!isJsonPage && choose(accept, [HTML, SIMPLE_HTML]) === null) return vary(answer(406, 'Not Acceptable', {}));
    key = segments.concat(isJsonPage ? 'index.json' : 'index.html');
  }
  // Always encoded anew: S3 takes a bare plus sign for a space.
  request.uri = encode(key);
  return request;
}

// Say in the bucket's answer which form of a page it is, and that the Accept header chose it.
function describe(response, accept) {
  const type = response.headers['content-type'];
  // An answer 304 may have no type.
  if (type && !type.value.startsWith(HTML)) return response;
  if (type && choose(accept, [HTML, SIMPLE_HTML]) === SIMPLE_HTML) type.value = SIMPLE_HTML;
  return vary(response);
}

function vary(response) {
  const old = response.headers.vary;
  response.headers.vary = { value: old ? `${old.value}, Accept` : 'Accept' };
  return response;
}

function answer(status, text, headers) {
  headers['cache-control'] = { value: 'no-cache' };
  return { statusCode: status, statusDescription: text, headers: headers };
}

function redirect(status, text, path) {
  return answer(status, text, { location: { value: path } });
}

// Return a path's segments, each decoded once, or null for what could mean another object than it seems to.
function decode(uri) {
  let segments;
  try {
    segments = uri.split('/').map(decodeURIComponent);
  } catch (error) {
    return null;
  }
  if (segments.shift() !== '') return null;
  if (segments[segments.length - 1] === '') segments.pop();
  const isOdd = (segment) => /^\.{0,2}$|[\/\\\x00-\x1f\x7f]/.test(segment);
  return segments.some(isOdd) ? null : segments;
}

function encode(segments) {
  const hex = (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`;
  return segments.map((segment) => `/${encodeURIComponent(segment).replace(/[!'()*]/g, hex)}`).join('');
}

function folder(segments) {
  return `${encode(segments)}/`;
}

// Return how many segments lead to an index: a view, or a view and a variant; 0 when they lead to none.
function rootDepth(segments) {
  if (!VIEW.test(segments[0])) return 0;
  return segments.length > 1 && VARIANT.test(segments[1]) ? 2 : 1;
}

// PEP 503.
function normalise(name) {
  return name.replace(/[-_.]+/g, '-').toLowerCase();
}

function acceptOf(headers) {
  const accept = headers.accept;
  if (!accept) return '';
  return accept.multiValue ? accept.multiValue.map((one) => one.value).join(', ') : accept.value;
}

// Return the offered form that an Accept header prefers, null when it takes none (RFC 9110 section 12.5.1, PEP 691).
function choose(accept, offered) {
  if (!accept.trim()) return HTML;
  const wishes = accept.split(',').map(parseWish).filter((wish) => wish !== null);
  let best = null;
  offered.forEach((form) => {
    const rank = rankOf(form, wishes);
    if (rank && (best === null || isAbove(rank, best.rank))) best = { form: form, rank: rank };
  });
  return best && best.form;
}

function parseWish(text) {
  const parts = text.split(';').map((part) => part.trim().toLowerCase());
  const media = parts[0].replace(/^(application\/vnd\.pypi\.simple\.)latest\+(json|html)$/, '$1v1+$2');
  const names = /^([^\/]+)\/(.+)$/.exec(media);
  if (!names) return null;
  const given = parts.slice(1).filter((part) => /^q(=|$)/.test(part));
  const quality = given.length > 0 ? given[0].slice(2).trim() : '1';
  if (!/^[01](\.\d{0,3})?$/.test(quality)) return null;
  const precision = 2 - (names[1] === '*' ? 1 : 0) - (names[2] === '*' ? 1 : 0);
  return { media: media, quality: Math.min(Number(quality), 1), precision: precision };
}

function fits(wish, form) {
  if (wish.precision === 2) return wish.media === form;
  return wish.precision === 0 || form.startsWith(wish.media.slice(0, -1));
}

function rankOf(form, wishes) {
  let best = null;
  wishes.forEach((wish) => {
    if (!fits(wish, form)) return;
    if (best === null || isAbove([wish.precision, wish.quality], [best.precision, best.quality])) best = wish;
  });
  if (best === null || best.quality === 0) return null;
  return [best.quality, best.precision, (best.precision === 2 ? NAMED : UNNAMED).indexOf(form)];
}

function isAbove(left, right) {
  const index = left.findIndex((value, at) => value !== right[at]);
  return index >= 0 && left[index] > right[index];
}
