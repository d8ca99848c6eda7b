//! Requests that are answered without a pod: health checks that must not wake anybody.

use crate::body::Answer;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};
use regex::Regex;

/// A kind of request, and the answer to it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The method; any if not given.
    pub method: Option<Method>,
    /// The path; any if not given.
    pub path: Option<Pattern>,
    /// Headers that must be there with such values.
    pub headers: Vec<(String, Pattern)>,
    /// Parameters of the query that must be there with such values.
    pub query: Vec<(String, Pattern)>,
    /// The status of the answer.
    pub status: StatusCode,
    /// The body of the answer.
    pub body: String,
}

/// How a text must look.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Exactly so.
    Exact(String),
    /// A path that is this one or below it.
    Prefix(String),
    /// It contains a match; `^` and `$` make it the whole text.
    Expression(Regex),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => {
                let prefix = prefix.trim_end_matches('/');
                text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Expression(expression) => expression.is_match(text),
        }
    }
}

impl Probe {
    /// Whether a request is of this kind: all that is asked for must be so.
    pub(crate) fn matches(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let query = uri.query().unwrap_or_default();
        self.method.as_ref().is_none_or(|wanted| wanted == method)
            && self.path.as_ref().is_none_or(|path| path.matches(uri.path()))
            && self.headers.iter().all(|(name, pattern)| {
                let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
                values.any(|value| pattern.matches(value))
            })
            && self.query.iter().all(|(name, pattern)| {
                let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                pairs.filter(|(key, _)| key == name).any(|(_, value)| pattern.matches(value))
            })
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Response<Answer> {
        let json = serde_json::from_str::<serde::de::IgnoredAny>(&self.body).is_ok();
        let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
        let empty = self.status == StatusCode::NO_CONTENT || self.body.is_empty();
        let body = if empty { Answer::Text(None) } else { Answer::text(self.body.clone()) };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        if !empty {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe {
            method: None,
            path: None,
            headers: Vec::new(),
            query: Vec::new(),
            status: StatusCode::OK,
            body: "{}".into(),
        }
    }

    fn matches(probe: &Probe, method: &Method, uri: &'static str) -> bool {
        let headers =
            HeaderMap::from_iter([(hyper::header::USER_AGENT, HeaderValue::from_static("kube-probe/1.36"))]);
        probe.matches(method, &Uri::from_static(uri), &headers)
    }

    #[test]
    fn a_prefix_ends_where_a_segment_does() {
        let health = Probe { path: Some(Pattern::Prefix("/health".into())), ..probe() };
        for (uri, expected) in [("/health", true), ("/health/live", true), ("/healthy", false), ("/", false)]
        {
            assert_eq!(matches(&health, &Method::GET, uri), expected, "{uri}");
        }
        let root = Probe { path: Some(Pattern::Prefix("/".into())), ..probe() };
        assert!(matches(&root, &Method::GET, "/anything"));
    }

    #[test]
    fn everything_that_is_asked_for_must_be_so() {
        let expression = |text: &str| Pattern::Expression(Regex::new(text).expect("an expression"));
        let all = Probe {
            method: Some(Method::GET),
            path: Some(Pattern::Exact("/".into())),
            headers: vec![("User-Agent".into(), expression("^kube-probe/"))],
            query: vec![("full".into(), Pattern::Exact("1".into()))],
            ..probe()
        };
        assert!(matches(&all, &Method::GET, "/?a=b&full=1"));
        assert!(!matches(&all, &Method::GET, "/?full=2"));
        assert!(!matches(&all, &Method::GET, "/"));
        assert!(!matches(&all, &Method::POST, "/?full=1"));
        assert!(matches(&probe(), &Method::PUT, "/whatever"));
    }
}
