-- dialect: ksqldb
-- A shop's orders, their payments and its customers: the three jobs that joins are written for.

CREATE STREAM orders (order_id INT KEY, customer STRING, amount DOUBLE, placed BIGINT)
  WITH (kafka_topic = 'orders', value_format = 'JSON', partitions = 1, timestamp = 'placed');

CREATE STREAM payments (order_id INT KEY, method STRING, paid BIGINT)
  WITH (kafka_topic = 'payments', value_format = 'JSON', partitions = 1, timestamp = 'paid');

CREATE TABLE customers (customer STRING PRIMARY KEY, name STRING, city STRING)
  WITH (kafka_topic = 'customers', value_format = 'JSON', partitions = 1);

-- 1. Enrich: every order with its customer, as the customer is known when the order is read.
CREATE STREAM orders_enriched AS
  SELECT o.customer AS customer, o.order_id AS order_id, o.amount AS amount, c.city AS city
  FROM orders o LEFT JOIN customers c ON o.customer = c.customer;

-- 2. Match and miss: orders that nobody paid within 10 minutes. GRACE makes the join wait until that is certain.
CREATE STREAM unpaid AS
  SELECT o.order_id AS order_id, o.customer AS customer, o.amount AS amount
  FROM orders o LEFT JOIN payments p WITHIN 10 MINUTES GRACE PERIOD 0 SECONDS ON o.order_id = p.order_id
  WHERE p.order_id IS NULL;

-- 3. A table that stays current: what each customer has spent. Every change of either side is a new row.
CREATE TABLE spent AS
  SELECT customer, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY customer;

CREATE TABLE customers_spent AS
  SELECT c.customer AS customer, c.name AS name, s.orders AS orders, s.total AS total
  FROM customers c LEFT JOIN spent s ON c.customer = s.customer;
