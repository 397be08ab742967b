-- dialect: risingwave
-- Sales meet the products as they stood at each sale; orders meet customers as both change; prices meet the mood of the
-- market before them. Run it again: it goes on from where it stood.
CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR, price INT);
CREATE TABLE sales (id INT, product INT, quantity INT) APPEND ONLY;
CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR);
CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount INT);

CREATE MATERIALIZED VIEW priced AS
  SELECT s.id, p.name, s.quantity, p.price
  FROM sales s JOIN products FOR SYSTEM_TIME AS OF PROCTIME() p ON s.product = p.id;

CREATE MATERIALIZED VIEW named AS
  SELECT o.id, c.name, o.amount FROM orders o LEFT JOIN customers c ON o.customer = c.id;

CREATE MATERIALIZED VIEW spent AS
  SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;

INSERT INTO products VALUES (101, 'Tea', 25), (102, 'Coffee', 15);
INSERT INTO sales VALUES (1, 101, 3);
UPDATE products SET price = 22 WHERE id = 101;
INSERT INTO sales VALUES (2, 102, 2), (3, 101, 1);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Ben');
INSERT INTO orders VALUES (10, 1, 5), (11, 2, 7), (12, 3, 9), (13, 1, 4);
DELETE FROM orders WHERE id = 11;

SELECT * FROM priced ORDER BY id;
SELECT * FROM named ORDER BY id;
SELECT * FROM spent ORDER BY customer;
