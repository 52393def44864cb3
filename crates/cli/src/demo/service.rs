//! The eight services that the demo's steps call, each at its own address.

use std::collections::BTreeMap;

/// A service that steps call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Service {
    Crm,
    Legacy,
    Mail,
    Pager,
    Payments,
    Reports,
    Search,
    Warehouse,
}

impl Service {
    pub(super) const ALL: [Self; 8] = [
        Self::Crm,
        Self::Legacy,
        Self::Mail,
        Self::Pager,
        Self::Payments,
        Self::Reports,
        Self::Search,
        Self::Warehouse,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crm => "crm",
            Self::Legacy => "legacy",
            Self::Mail => "mail",
            Self::Pager => "pager",
            Self::Payments => "payments",
            Self::Reports => "reports",
            Self::Search => "search",
            Self::Warehouse => "warehouse",
        }
    }
}

/// The addresses of the services. Host and port distinguish destinations.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(BTreeMap<Service, String>);

impl Addresses {
    pub(super) fn new(all: impl IntoIterator<Item = (Service, String)>) -> Self {
        Self(all.into_iter().collect())
    }

    pub(super) fn url(&self, service: Service, path: &str) -> String {
        format!("http://{}/{path}", self.host(service))
    }

    /// Returns the demo's configuration file with the actual addresses.
    pub(super) fn fill_in(&self, file: &str) -> String {
        Service::ALL.iter().fold(file.to_owned(), |file, service| {
            file.replace(&format!("{}.demo", service.name()), self.host(*service))
        })
    }

    fn host(&self, service: Service) -> &str {
        self.0.get(&service).map_or("127.0.0.1:9", String::as_str)
    }
}
